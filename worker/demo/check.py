"""Decide whether a recording holds what was said: every part, once, in order, as well understood.

Two judges that fail differently: the waveform (each piece of what the engine made for this very
request must be found at its place) and a speech recogniser (at most ten points of word error rate
more than the engine has that renders the same text and seed without a room). The two renderings
differ where text came late: the engine then lets the last sound end and goes on.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from playhead.worker.demo.align import align
from playhead.worker.demo.asr import word_error_rate

MORE_WER = 0.10
"""Word error rate that the way to the listener may add."""
MIN_FOUND_SHARE = 0.9
MAX_LOSS_S = 0.7
"""A stretching jitter buffer hides a piece or two from the waveform judge, never two seconds."""
GAP_S = 0.04
MAX_GAP_S = 0.5


class Hears(Protocol):
    """A speech recogniser."""

    def transcribe(self, pcm: npt.NDArray[np.int16]) -> str:
        """Return the text of 24 kHz mono speech."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a listener's recording is worth."""

    wer_heard: float
    wer_engine: float
    found_share: float
    longest_loss_s: float
    num_gaps: int
    longest_gap_s: float
    problems: tuple[str, ...]
    """Empty: the recording is accepted."""

    def summary(self) -> str:
        """Return one line for people."""
        figures = (
            f"word error rate {self.wer_heard:.1%} heard, {self.wer_engine:.1%} from the engine; "
            f"{self.found_share:.1%} of the sound found in order; {self.num_gaps} gaps"
        )
        return f"{'FAILED: ' + '; '.join(self.problems) if self.problems else 'OK'} ({figures})"


def judge(
    text: str,
    engine_pcm: npt.NDArray[np.int16],
    made_pcm: npt.NDArray[np.int16],
    heard_pcm: npt.NDArray[np.int16],
    recogniser: Hears,
) -> Verdict:
    """Compare what was heard with the text, with what the engine made, and with its rendering."""
    wer_engine = word_error_rate(text, recogniser.transcribe(engine_pcm))
    wer_heard = word_error_rate(text, recogniser.transcribe(heard_pcm))
    alignment = align(made_pcm, heard_pcm)
    gaps = [pause.duration_s for pause in alignment.pauses(GAP_S)]
    loss_s, longest_gap_s = alignment.longest_loss_s(), max(gaps, default=0.0)
    problems: list[str] = []
    if wer_heard > wer_engine + MORE_WER:
        problems.append(f"{wer_heard:.1%} of the words wrong, the engine's own {wer_engine:.1%}")
    if loss_s > MAX_LOSS_S:
        problems.append(f"{loss_s:.1f} s of speech missing or out of order")
    if alignment.found_share < MIN_FOUND_SHARE:
        problems.append(f"only {alignment.found_share:.1%} of the speech found in order")
    if longest_gap_s > MAX_GAP_S:
        problems.append(f"a gap of {longest_gap_s:.2f} s")
    return Verdict(
        wer_heard=wer_heard,
        wer_engine=wer_engine,
        found_share=alignment.found_share,
        longest_loss_s=loss_s,
        num_gaps=len(gaps),
        longest_gap_s=longest_gap_s,
        problems=tuple(problems),
    )

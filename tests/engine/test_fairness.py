"""What one caller writes is nobody else's trouble: the others get the samples they get without it.

The real voice, in batches that are too small for all, on a device with step times and a clock of
its own. Three callers are compared with and without a neighbour.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from playhead.engine.eager_runner import EagerRunner
from playhead.engine.flight import Flight
from playhead.engine.messages import Append, Cancel, Close, Submit
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.profile import Profile
from playhead.engine.runner import FrameResult
from tests.engine.driver import spoken
from tests.engine.flying import FlyingDriver, Times

SENTENCES = ("Thanks for calling.", "The package is on its way.", "Please stay on the line.")
SENTENCE = "We count the boxes on every shelf, one after another, and write each number down. "
NUM_WORDS = 1_500
"""Ten minutes of speech."""
NORMAL_S = 1 / 8
"""From one word to the next as a language model writes them."""
DEVICE = Times(0.022, 0.008, spread=0.3)
PROFILE = Profile(max_rows=2, busy_limit=1.0)
JOINS_S = 0.2


class CodesOfSeeds(EagerRunner):
    """The real runner; keeps the codes that each seed's stream was given."""

    seeds: dict[int, int]
    codes: dict[int, list[NDArray[np.int16]]]

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        self.seeds[slot] = seed
        return super().open(slot, prompt, sampling, seed)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        flight = super().launch_frame(slots, text_ids, may_end)
        for slot, codes in zip(slots, flight.result().codes, strict=True):
            self.codes[self.seeds[slot]].append(codes.copy())
        return flight


def keeping_codes(model: Model, profile: Profile) -> CodesOfSeeds:
    runner = CodesOfSeeds(model, profile.max_streams, profile.segment_frames, num_threads=1)
    runner.seeds, runner.codes = {}, defaultdict(list)
    return runner


@dataclass
class Neighbour:
    """A caller beside the others: so much text, so many seconds from one word to the next."""

    num_words: int
    period_s: float
    """0: all at once."""

    def words(self) -> list[str]:
        """Return its text, word by word."""
        return [f"{word} " for word in (SENTENCE * (self.num_words // 15 + 1)).split()][
            : self.num_words
        ]


def beside(neighbour: Neighbour | None) -> tuple[FlyingDriver, CodesOfSeeds]:
    """Let three callers come one after another beside a neighbour who was there first."""
    driver = FlyingDriver(DEVICE, PROFILE, keeping_codes)
    words = neighbour.words() if neighbour else []
    began_s, joined, names = driver.now_s, 0, [f"c{i}" for i in range(len(SENTENCES))]
    if neighbour and not neighbour.period_s:
        driver.submit(Submit("odd", text="".join(words), closed=True, seed=1))
        words = []
    elif neighbour:
        driver.submit(Submit("odd", text=words.pop(0), seed=1))
    sent = 1
    while joined < len(names) or not all(driver.ended(name) for name in names):
        passed_s = driver.now_s - began_s
        assert passed_s < 60.0, "somebody starves"
        while neighbour and words and passed_s >= sent * neighbour.period_s:
            driver.engine.post(Append("odd", words.pop(0)))
            sent += 1
            if not words:
                driver.engine.post(Close("odd"))
        if joined < len(names) and passed_s >= JOINS_S * (joined + 1):
            driver.submit(spoken(SENTENCES[joined], names[joined], seed=11 + joined))
            joined += 1
        driver.step()
    if neighbour:
        assert len(driver.pcm("odd")) > 24_000, "it spoke meanwhile"
        driver.engine.post(Cancel("odd"))
        driver.finish("odd")
    return driver, driver.device.inner  # type: ignore[return-value]


@pytest.fixture(scope="module")
def alone() -> tuple[FlyingDriver, CodesOfSeeds]:
    return beside(None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "neighbour",
    [
        Neighbour(NUM_WORDS, 0.0),
        Neighbour(120, NORMAL_S),
        Neighbour(120, NORMAL_S / 10),
    ],
    ids=["ten minutes of text at once", "text at its usual speed", "text ten times as fast"],
)
def test_a_neighbours_text_changes_nobody_elses_audio(
    alone: tuple[FlyingDriver, CodesOfSeeds], neighbour: Neighbour
) -> None:
    calm, calm_runner = alone
    driver, runner = beside(neighbour)
    for number in range(len(SENTENCES)):
        name, seed = f"c{number}", 11 + number
        assert np.array_equal(np.stack(runner.codes[seed]), np.stack(calm_runner.codes[seed]))
        assert len(driver.pcm(name)) == len(calm.pcm(name))
        assert np.allclose(driver.pcm(name), calm.pcm(name), rtol=0, atol=1e-4 * 32_767)
        assert driver.words(name) == calm.words(name)
        assert driver.listeners[name].gaps == []
    sizes = [len(b.slots) for b in driver.device.launches if b.kind == "frame"]
    assert max(sizes) == PROFILE.max_rows, "nobody had to wait for a row"
    assert driver.engine.metrics.late_chunks == 0

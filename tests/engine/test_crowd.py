"""Many requests at once, more than there is room for, and thousands one after another."""

import gc
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from numpy.typing import NDArray

from playhead.engine.eager_runner import EagerRunner
from playhead.engine.errors import Busy
from playhead.engine.flight import Flight
from playhead.engine.messages import Cancel, Done, Pcm, Refused, Submit
from playhead.engine.models.config import ResolvedSampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.profile import Profile
from playhead.engine.runner import FrameResult
from tests.engine.driver import SHORT, Driver, spoken
from tests.engine.flying import FlyingDriver, Times
from tests.engine.made_up import MadeUp

MB = 1 << 20


class FewPages(EagerRunner):
    """The real runner with memory for the segments of two streams."""

    num_pages = 2

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        if len(self._slots) >= self.num_pages:
            raise Busy("no memory for another stream's segment", 1.5)
        return super().open(slot, prompt, sampling, seed)


def few_pages(model: Model, profile: Profile) -> EagerRunner:
    return FewPages(model, profile.max_streams, profile.segment_frames, num_threads=1)


@pytest.mark.slow
def test_used_up_memory_refuses_the_next_and_touches_no_running_stream() -> None:
    text = "Thanks for calling."
    alone = Driver()
    alone.submit(spoken(text, live=False))
    alone.finish("a")
    driver = Driver(Profile(busy_limit=1.0), few_pages)
    for name in ("a", "b"):
        driver.submit(spoken(text, name))
    driver.run(0.1)
    for number in range(8):
        driver.submit(spoken(request_id=f"late{number}"))
        driver.step()
        refused = driver.results[f"late{number}"][-1]
        assert isinstance(refused, Refused) and refused.retry_s == 1.5
    driver.finish("a", "b")
    for name in ("a", "b"):
        assert np.allclose(driver.pcm(name), alone.pcm("a"), rtol=0, atol=1e-4 * 32_767)
        assert driver.listeners[name].gaps == []
    driver.submit(spoken(text, "c"))
    driver.finish("c")
    assert driver.done("c").reason == "stop"
    assert len(driver.engine._stages.free_slots) == driver.engine.profile.max_streams


def test_four_times_more_requests_than_slots_are_all_served_in_the_end() -> None:
    """Refused ones come again when they were told to; nobody is dropped and nothing breaks."""
    profile = Profile(max_streams=8, max_rows=4, busy_limit=1.0)
    driver = FlyingDriver(Times(0.004, 0.002), profile, lambda *_: MadeUp())
    again_s = {f"r{number}": driver.now_s for number in range(4 * profile.max_streams)}
    num_refused = 0
    while again_s:
        for name in [name for name, at_s in again_s.items() if at_s <= driver.now_s]:
            del again_s[name]
            driver.submit(spoken("Hello there.", name, live=False))
            driver.step()
            last = driver.results[name][-1]
            if isinstance(last, Refused):
                assert last.retry_s is not None
                num_refused += 1
                driver.results[name].clear()
                again_s[name] = driver.now_s + last.retry_s
        driver.run(0.05)
        assert driver.now_s < 1_200.0, "somebody is never served"
    names = [f"r{number}" for number in range(4 * profile.max_streams)]
    driver.finish(*names)
    assert num_refused >= len(names) - profile.max_streams
    assert all(driver.done(name).reason == "stop" for name in names)
    driver.settled()


class Codes(EagerRunner):
    """The real runner; keeps the codes of the stream with seed 7, and the sizes of its batches."""

    watched = 0
    """Its slot; 0 before it came: no stream has that one."""
    codes: list[NDArray[np.int16]]
    rows: set[int]

    def open(self, slot: int, prompt: Prompt, sampling: ResolvedSampling, seed: int) -> int:
        if seed == 7:
            self.watched, self.codes, self.rows = slot, [], set()
        return super().open(slot, prompt, sampling, seed)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        flight = super().launch_frame(slots, text_ids, may_end)
        if self.watched in slots:
            self.codes.append(flight.result().codes[list(slots).index(self.watched)].copy())
            self.rows.add(len(slots))
        return flight


@pytest.mark.slow
def test_a_seed_gives_the_same_codes_alone_and_among_31_others(tmp_path: Path) -> None:
    """In fp32 on a CPU; the profile `deterministic` is what holds it on a GPU."""
    folder = write_checkpoint(tmp_path, "tiny", dtype=torch.float32)
    made: list[Codes] = []

    def make(model: Model, profile: Profile) -> Codes:
        made.append(Codes(model, profile.max_streams, profile.segment_frames, num_threads=1))
        return made[-1]

    def codes(num_others: int) -> NDArray[np.int16]:
        profile = Profile(max_streams=64, max_rows=32, flat_rows=32, busy_limit=1.0)
        driver = FlyingDriver(Times(0.0, 0.0), profile, make, model=folder)
        for number in range(num_others):
            other = Submit(
                f"o{number}", text=SHORT[number:], closed=True, live=False, seed=number + 8
            )
            driver.submit(replace(other, max_frames=20 + number))
        for _ in range(2 * (num_others > 0)):
            driver.step()
        driver.submit(Submit("a", text=SHORT, closed=True, live=False, seed=7, max_frames=30))
        driver.finish("a")
        return np.stack(made[-1].codes)

    alone = codes(0)
    assert made[-1].rows == {1}
    among = codes(31)
    assert max(made[-1].rows) >= 24, "it hardly met anybody"
    assert np.array_equal(alone, among)
    assert len(np.unique(alone, axis=0)) > 20, "equal frames would prove little"


@pytest.mark.slow
def test_five_thousand_requests_leave_nothing_behind() -> None:
    """Three in ten are cut short; memory is that of the first thousand, give or take 30 MB."""
    chance, process = random.Random(3), psutil.Process()
    profile = Profile(max_streams=64, max_rows=32, busy_limit=1.0)
    driver = FlyingDriver(Times(0.0, 0.0), profile, lambda *_: MadeUp())
    start_mb = 0.0
    for group in range(0, 5_000, 25):
        names = [f"r{group + number}" for number in range(25)]
        for name in names:
            driver.submit(spoken("Hi.", name, live=False, seed=group))
        for _ in range(3):
            driver.step()
        for name in names:
            if chance.random() < 0.3 and not driver.ended(name):
                driver.engine.post(Cancel(name))
        driver.finish(*names, dt_s=0.001)
        assert all(isinstance(driver.results[name][-1], Done) for name in names)
        assert any(isinstance(r, Pcm) for name in names for r in driver.results[name])
        driver.results.clear()
        driver.order.clear()
        driver.device.launches.clear()
        if group == 1_000:
            gc.collect()
            start_mb = process.memory_info().rss / MB
    gc.collect()
    assert abs(process.memory_info().rss / MB - start_mb) < 30.0
    metrics = driver.engine.metrics
    assert metrics.cancelled >= 1_000 and metrics.done + metrics.cancelled == 5_000
    assert (metrics.live, metrics.offline, metrics.failed) == (0, 0, 0)
    assert driver.engine._requests == {} and driver.engine._table.requests == []
    assert driver.num_free == profile.max_streams
    assert sorted(driver.device.opened) == sorted(driver.device.closed)

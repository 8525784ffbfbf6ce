"""Interruptions at random moments: what was cut is over, and what follows begins clean."""

import random
import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from playhead.engine.eager_runner import EagerRunner, eager_runner
from playhead.engine.engine import Engine
from playhead.engine.flight import Flight
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Accepted, Cancel, Done, Pcm, Result, Submit
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile
from playhead.engine.runner import FrameResult
from tests.engine.driver import Driver
from tests.engine.flying import LOUDNESS, FlyingDriver, Times, ToneRunner

SHORT = "Thanks for calling. How can I help you today?"
LONG = SHORT * 6
NUM = 500
"""Interruptions of each test."""


def spoken(request_id: str, text: str = LONG, **given: object) -> Submit:
    values = {"text": text, "closed": True, "seed": 5} | given
    return Submit(request_id=request_id, **values)  # type: ignore[arg-type]


def assert_nothing_of_the_old(results: Sequence[Result]) -> None:
    """Each id speaks between its Accepted and its one end only, and no two ids mix."""
    current = ""
    ended: set[str] = set()
    for result in results:
        assert result.request_id not in ended, f"{result} after the end"
        if isinstance(result, Accepted):
            current = result.request_id
        assert result.request_id == current, f"{result} after {current} began"
        if isinstance(result, Done):
            ended.add(result.request_id)


@pytest.mark.slow
@pytest.mark.parametrize(
    "times",
    [Times(0.0, 0.0), Times(0.004, 0.003), Times(0.03, 0.04), Times(0.015, 0.012, spread=0.8)],
)
def test_no_byte_of_an_old_id_follows_a_new_start(times: Times) -> None:
    chance = random.Random(3)
    tone = ToneRunner()
    driver = FlyingDriver(times, Profile(max_streams=4), lambda *_: tone)
    started: list[int] = []
    for number in range(NUM):
        driver.submit(spoken(f"r{number}"))
        driver.step(dt_s=0.0)
        until_s = driver.now_s + chance.choice((0.0, 0.02, 0.1, 0.4))
        while driver.now_s < until_s:
            driver.step()
        driver.listeners[f"r{number}"].leave()
        driver.engine.post(Cancel(f"r{number}"))
        num_launches = len(driver.device.launches)
        (slot,) = (s for s, serial in tone.serials.items() if serial == number + 1)
        driver.step(dt_s=0.0)
        mine = [b for b in driver.device.launches[num_launches:] if slot in b.slots]
        assert not mine, "a step after the command"
        started.append(len(driver.chunks(f"r{number}")))
    assert_nothing_of_the_old(driver.order)
    for number in range(NUM):
        assert set(np.abs(driver.pcm(f"r{number}")).tolist()) <= {LOUDNESS + number + 1}
        assert driver.done(f"r{number}").reason == "cancelled"
    assert sum(num > 0 for num in started) > NUM // 4
    assert driver.engine.metrics.cancelled == NUM
    driver.settled()


class CountingRunner(EagerRunner):
    """The real runner; counts what each slot was opened, stepped and closed."""

    opened: list[int]
    closed: list[int]
    frames: list[tuple[int, ...]]

    def open(self, slot: int, *given: object) -> int:
        self.opened.append(slot)
        return super().open(slot, *given)  # type: ignore[arg-type]

    def close(self, slot: int) -> None:
        assert slot in self._slots, "closed twice"
        self.closed.append(slot)
        super().close(slot)

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        self.frames.append(tuple(slots))
        return super().launch_frame(slots, text_ids, may_end)


def counting_runner(made: list[CountingRunner]) -> object:
    def make(model: Model, profile: Profile) -> EagerRunner:
        runner = eager_runner(model, profile)
        runner.__class__ = CountingRunner
        assert isinstance(runner, CountingRunner)
        runner.opened, runner.closed, runner.frames = [], [], []
        made.append(runner)
        return runner

    return make


def speech_of(driver: Driver, request_id: str) -> NDArray[np.int16]:
    driver.submit(spoken(request_id, SHORT, live=False))
    driver.finish(request_id)
    return driver.pcm(request_id)


@pytest.mark.slow
def test_a_slot_that_was_cut_begins_clean() -> None:
    """KV, penalty, seed and codec state: the next speech is that of a fresh engine."""
    chance = random.Random(5)
    made: list[CountingRunner] = []
    fresh = speech_of(Driver(), "a")
    driver = Driver(Profile(max_streams=1), counting_runner(made))  # type: ignore[arg-type]
    for number in range(6):
        driver.submit(spoken(f"r{number}", seed=number))
        driver.run(chance.uniform(0.01, 0.4))
        num_frames = len(made[0].frames)
        driver.engine.post(Cancel(f"r{number}"))
        driver.step()
        assert len(made[0].frames) == num_frames
        assert made[0]._slots == {}
    after = speech_of(driver, "a")
    assert len(after) == len(fresh)
    assert np.allclose(after, fresh, rtol=0, atol=1e-4 * 32_767)
    assert made[0].opened == made[0].closed == [1] * 7


class PacedRunner(ToneRunner):
    """Steps take a moment, so that commands come in the middle of them; notes whose they are."""

    def __init__(self) -> None:
        super().__init__()
        self.stepped: list[int] = []

    def launch_frame(
        self, slots: Sequence[int], text_ids: Sequence[int], may_end: Sequence[bool]
    ) -> Flight[FrameResult]:
        self.stepped += [self.serials[slot] for slot in slots]
        time.sleep(0.0005)
        return super().launch_frame(slots, text_ids, may_end)


@pytest.mark.slow
def test_the_last_step_comes_at_most_one_after_the_command() -> None:
    """The engine runs on its own thread and is interrupted from this one, mid-step or not."""
    chance = random.Random(7)
    runner = PacedRunner()
    results: list[Result] = []
    changed = threading.Condition()

    def take(batch: list[Result]) -> None:
        with changed:
            results.extend(batch)
            changed.notify_all()

    def wait_for(kind: type[Result], request_id: str) -> None:
        with changed:
            came = changed.wait_for(
                lambda: any(isinstance(r, kind) and r.request_id == request_id for r in results), 30
            )
        assert came, f"no {kind} of {request_id}"

    engine = Engine(EMBEDDED_VOICE, Profile(max_streams=4), take, make_runner=lambda *_: runner)
    thread = threading.Thread(target=engine.run)
    thread.start()
    late: list[int] = []
    try:
        for number in range(NUM):
            engine.post(spoken(f"r{number}"))
            wait_for(Accepted if number % 3 else Pcm, f"r{number}")
            time.sleep(chance.uniform(0.0, 0.004))
            before = len(runner.stepped)
            engine.post(Cancel(f"r{number}"))
            wait_for(Done, f"r{number}")
            late.append(runner.stepped[before:].count(number + 1))
            with changed:
                assert_nothing_of_the_old(results)
                results.clear()
    finally:
        engine.stop()
        thread.join(10)
    assert max(late) <= 1
    last_seen = {serial: i for i, serial in enumerate(runner.stepped)}
    order = [last_seen[serial] for serial in sorted(last_seen)]
    assert order == sorted(order), "a step of an id after a later one's"
    assert runner.serials == {}
    assert len(engine._stages.free_slots) == 4

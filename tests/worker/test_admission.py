"""Who is let in: the load told to the media server, offers at the same time, overload."""

import asyncio
import itertools
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.engine.messages import Accepted, Cancel, Refused, Submit
from playhead.engine.profile import Profile
from playhead.engine.replay_runner import ReplayRunner
from playhead.engine.replay_times import StepTimes
from playhead.worker.app import LOAD_LIMIT, WorkerApp, WorkerOptions
from playhead.worker.client import EngineClient
from playhead.worker.demo.server import Access
from playhead.worker.thread_carrier import ThreadCarrier
from tests.engine.flying import WakingDriver
from tests.fakes import ScriptedEngine
from tests.worker.people import Person
from tests.worker.test_worker import ready, worker

TEXT = "The evening train leaves from the main station at a quarter past nine. "
SLOW = StepTimes(
    name="slow",
    frame_ms=((1, 6.0), (8, 12.0)),
    codec_fixed_ms=1.0,
    codec_frame_ms=3.0,
    overlap_speed=((1, 0.7),),
    padded=False,
)
"""About a dozen streams fill such a device."""


class ReplayDriver(WakingDriver):
    """The real engine over a device that computes nothing, on a clock of its own."""

    def __init__(self, profile: Profile) -> None:
        def make(*_: object) -> ReplayRunner:
            return ReplayRunner(SLOW, lambda: self.now_s, self._sleep_until)

        super().__init__(profile, make)

    def _sleep_until(self, at_s: float) -> None:
        self.now_s = max(self.now_s, at_s)

    def admitted(self, request_id: str) -> bool:
        return isinstance(self.results[request_id][0], Accepted)


def test_load_rises_to_the_limit_before_anybody_is_refused() -> None:
    driver = ReplayDriver(Profile(max_streams=64, max_rows=8))
    loads: list[float] = []
    for number in range(40):
        driver.submit(Submit(f"r{number}", text=TEXT * 8, closed=True))
        driver.run(0.3, dt_s=0.01)
        if not driver.admitted(f"r{number}"):
            break
        loads.append(driver.engine.load())
    assert 4 <= number < 39, f"{number} streams on a device for about a dozen"
    for before, after in itertools.pairwise(loads):
        assert after > before - 0.05, loads  # costs are learned meanwhile
    first_over = next(i for i, load in enumerate(loads) if load >= LOAD_LIMIT)
    assert first_over < number, "the media server is told to stop before a room is refused"
    assert driver.engine.metrics.late_chunks == 0


def test_silent_streams_that_were_admitted_count_like_speaking_ones() -> None:
    driver = ReplayDriver(Profile(max_streams=64, max_rows=8))
    driver.submit(Submit("warm", text=TEXT * 2, closed=True))  # learn what steps cost
    driver.finish("warm")
    for number in range(40):
        driver.submit(Submit(f"r{number}"), subscribed=False)  # no text yet, nobody listens
    driver.run(0.1)
    admitted = sum(driver.admitted(f"r{number}") for number in range(40))
    assert 4 <= admitted < 40
    assert driver.engine.load() >= LOAD_LIMIT
    for number in range(40):
        driver.engine.post(Cancel(f"r{number}"))
    driver.run(0.1)
    assert driver.engine.load() == 0.0


@pytest.fixture(scope="module")
def overloaded() -> tuple[ReplayDriver, list[str]]:
    """Calls of 5 s come at random, four times as many as fit, for forty seconds."""
    chance = random.Random(11)
    driver = ReplayDriver(Profile(max_streams=64, max_rows=8))
    next_s, end_s, num = driver.now_s, driver.now_s + 40.0, 0
    while driver.now_s < end_s:
        if driver.now_s >= next_s:
            next_s += chance.expovariate(4 * 12 / 5.0)
            driver.submit(Submit(f"r{num}", text=TEXT, closed=True, seed=num))
            num += 1
        driver.step()
    names = [f"r{number}" for number in range(num)]
    driver.finish(*names)
    return driver, names


@pytest.mark.slow
def test_four_times_the_load_is_refused_at_once_with_a_time_to_retry(
    overloaded: tuple[ReplayDriver, list[str]],
) -> None:
    driver, names = overloaded
    refusals = [r for name in names for r in driver.results[name] if isinstance(r, Refused)]
    assert len(refusals) > len(names) // 2 > 100
    assert all(r.code == "busy" and r.retry_s is not None and r.retry_s > 0 for r in refusals)
    assert all(len(driver.results[r.request_id]) == 1 for r in refusals)
    admitted = [name for name in names if driver.admitted(name)]
    assert len(admitted) + len(refusals) == len(names)
    assert all(driver.done(name).reason == "stop" for name in admitted)
    assert driver.engine.metrics.refused_busy == len(refusals)


@pytest.mark.slow
def test_four_times_the_load_harms_nobody_who_was_admitted(
    overloaded: tuple[ReplayDriver, list[str]],
) -> None:
    driver, names = overloaded
    gaps = {name: driver.listeners[name].gaps for name in names if driver.listeners[name].gaps}
    assert gaps == {}
    assert driver.engine.metrics.late_chunks == 0


def test_speculative_requests_take_spare_slots_only_and_go_first() -> None:
    driver = ReplayDriver(Profile(max_streams=3, max_rows=8))
    for number in range(3):
        driver.submit(
            Submit(f"s{number}", text=TEXT, closed=True, speculative=True), subscribed=False
        )
    driver.run(0.05)  # nobody hears them yet; the batches of all three are in flight
    assert driver.engine._stages.flying
    driver.submit(Submit("live", text=TEXT, closed=True))
    driver.run(0.05)
    assert driver.admitted("live")
    assert driver.ended("s2") and not driver.ended("s0")
    driver.submit(Submit("late", text=TEXT, closed=True, speculative=True), subscribed=False)
    driver.run(0.05)
    assert isinstance(driver.results["late"][0], Refused)


@pytest.fixture
def app() -> Any:
    options = WorkerOptions(url="ws://nowhere", api_key="k", api_secret="s" * 32, max_rooms=4)
    made = WorkerApp(options)
    made.client = EngineClient(ThreadCarrier(ScriptedEngine))  # type: ignore[arg-type]
    made.client.start()
    yield made
    made.client.close()


def test_silent_rooms_count_in_the_load(app: WorkerApp) -> None:
    loads = [app.load(SimpleNamespace(active_jobs=[None] * num)) for num in range(5)]  # type: ignore[arg-type]
    assert loads == sorted(set(loads)) and loads[0] == 0.0
    assert loads[3] < LOAD_LIMIT <= loads[4]


@pytest.mark.livekit
@pytest.mark.slow
async def test_rooms_offered_at_the_same_time_are_never_too_many(
    livekit_server: Access, room_name: str, tmp_path: Path
) -> None:
    async with worker(livekit_server, tmp_path, "--max-rooms", "2") as running:
        people = [Person(livekit_server, f"{room_name}-{n}", "ann") for n in range(7)]
        await asyncio.gather(*(person.__aenter__() for person in people))
        try:
            await running.until(lambda: sum(p.worker is not None for p in people) >= 2)
            await asyncio.sleep(5.0)
            assert sum(person.worker is not None for person in people) == 2
            assert ready(running.port)[1]["rooms"] == 2
            assert ready(running.port)[1]["load"] >= LOAD_LIMIT
            for person in people:
                if person.worker is not None:
                    await person.say("Hello there.", "r1")
                    assert (await person.end_of("r1"))["type"] == "finished"
        finally:
            await asyncio.gather(*(person.leave() for person in people))

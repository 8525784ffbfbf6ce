"""The engine on a device whose batches land later: cancel, end of speech and limits in flight."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from playhead.engine.admission import StepCosts
from playhead.engine.errors import DeviceFault
from playhead.engine.messages import (
    Append,
    Cancel,
    Close,
    Done,
    Failed,
    Result,
    Sampling,
    Starved,
    Submit,
)
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.profile import Profile
from playhead.engine.units import FRAME_SAMPLES
from tests.engine.driver import Driver
from tests.engine.flying import LOUDNESS, FlyingDriver, Times, ToneRunner

SHORT = "Thanks for calling. How can I help you today?"
TEXT = "The evening train leaves from the main station at a quarter past nine."
AT_ONCE, QUICK, SLOW_CODEC, SLOW, UNSTEADY = (
    Times(0.0, 0.0),
    Times(0.004, 0.003),
    Times(0.006, 0.040),
    Times(0.030, 0.008),
    Times(0.015, 0.012, spread=0.8),
)
ALL = [AT_ONCE, QUICK, SLOW_CODEC, SLOW, UNSTEADY]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose front end lets the model choose where its speech ends."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny", dtype=torch.float32)


def toned(
    times: Times,
    runner: ToneRunner | None = None,
    profile: Profile | None = None,
    **given: Path,
) -> tuple[FlyingDriver, ToneRunner]:
    tone = runner or ToneRunner()
    return FlyingDriver(times, profile, lambda *_: tone, **given), tone


def spoken(text: str = SHORT, request_id: str = "a", **given: object) -> Submit:
    values = {"text": text, "closed": True, "seed": 5} | given
    return Submit(request_id=request_id, **values)  # type: ignore[arg-type]


def assert_same_speech(driver: Driver, other: Driver, name: str = "a") -> None:
    one, reference = driver.pcm(name), other.pcm("a")
    assert len(one) == len(reference)
    assert np.allclose(one, reference, rtol=0, atol=1e-4 * 32_767)
    assert driver.words(name) == other.words("a")
    assert replace(driver.done(name), request_id="a") == other.done("a")


@pytest.fixture(scope="module")
def alone() -> Driver:
    """SHORT spoken offline on a runner whose batches land at once."""
    driver = Driver()
    driver.submit(spoken(live=False))
    driver.finish("a")
    return driver


@pytest.mark.slow
@pytest.mark.parametrize("times", ALL)
def test_speech_is_the_same_however_long_batches_fly(alone: Driver, times: Times) -> None:
    driver = FlyingDriver(times, Profile(busy_limit=1.0))
    for name in ("a", "b", "file"):
        driver.submit(spoken(request_id=name, live=name != "file"))
        driver.run(0.31)
    driver.finish("a", "b", "file")
    for name in ("a", "b", "file"):
        assert_same_speech(driver, alone, name)
    assert all(not clock.gaps for clock in driver.listeners.values())
    driver.settled()


def test_frame_batches_are_queued_behind_one_another() -> None:
    driver, _ = toned(Times(0.03, 0.001))
    driver.submit(spoken(TEXT, live=False))
    driver.finish("a")
    frames = [b for b in driver.device.launches if b.kind == "frame"]
    assert sum(b.behind for b in frames) > 0.5 * len(frames)
    assert driver.engine.metrics.frame_steps == len(frames)
    driver.settled()


class KnownRunner(ToneRunner):
    """A runner that knows what its batches take."""

    def costs(self) -> StepCosts:
        return StepCosts.measured([(1, 0.004), (8, 0.004)], [(1, 0.001), (8, 0.001)])


def test_frame_that_lands_during_a_launch_is_decoded_before_the_next_one_lands() -> None:
    driver, _ = toned(Times(0.004, 0.001, host_s=0.0006), KnownRunner())
    driver.submit(spoken(TEXT))
    driver.run(1.0)
    launches = driver.device.launches
    first, second = [b for b in launches if b.kind == "frame"][:2]
    codec = next(b for b in launches if b.kind == "codec")
    assert second.behind
    assert codec.launched_s < (first.due_s + second.due_s) / 2


class BusyDriver(FlyingDriver):
    """A host that is busy with every batch of results for a while."""

    busy_s = 0.0

    def _take(self, results: list[Result]) -> None:
        self.now_s += self.busy_s
        super()._take(results)


@pytest.mark.parametrize(
    ("times", "busy_s"),
    [(Times(0.008, 0.0148), 0.003), (Times(0.008, 0.001, spread=0.6), 0.0)],
    ids=["the host is busy when a frame is due", "frames are done sooner than predicted"],
)
def test_the_device_hardly_waits_where(times: Times, busy_s: float) -> None:
    driver = BusyDriver(times, Profile(chunk_frames=(1, 3)), lambda *_: KnownRunner())
    driver.busy_s = busy_s
    driver.submit(spoken(TEXT * 3, live=False))
    driver.finish("a")
    frames = [b for b in driver.device.launches if b.kind == "frame"][32:]
    waited_s = sum(max(b.launched_s - a.due_s, 0.0) for a, b in pairwise(frames))
    assert len(frames) > 100 and waited_s < 0.03 * (frames[-1].due_s - frames[0].due_s)


@pytest.mark.parametrize("times", [QUICK, SLOW_CODEC, SLOW, UNSTEADY])
@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.03, 0.05, 0.5])
def test_slot_is_free_only_after_the_landing_when_cancelled_in_flight(
    times: Times, after_s: float
) -> None:
    driver, _ = toned(times)
    driver.submit(spoken())
    driver.run(after_s)
    while not driver.device.held:
        driver.step()
    num_launches = len(driver.device.launches)
    driver.engine.post(Cancel("a"))
    driver.step(dt_s=0.0)
    assert driver.done("a").reason == "cancelled"
    assert len(driver.device.launches) == num_launches
    if driver.device.held:
        assert driver.num_free == driver.engine.profile.max_streams - 1
        assert driver.device.closed == []
    num_results = len(driver.order)
    driver.run(1.0)
    assert len(driver.order) == num_results, "nothing follows a Done"
    driver.settled()


@pytest.mark.parametrize("times", [AT_ONCE, QUICK, SLOW, UNSTEADY])
def test_nothing_of_an_old_stream_is_heard_in_the_next_one_of_its_slot(times: Times) -> None:
    driver, _ = toned(times, profile=Profile(max_streams=2))
    for number in range(20):
        driver.submit(spoken(request_id=f"r{number}"))
        driver.run(0.05 + 0.017 * number)
        driver.engine.post(Cancel(f"r{number}"))
    driver.run(1.0)
    assert set(driver.device.opened) <= {1, 2}, "slots are used again"
    for number in range(20):
        loudness = set(np.abs(driver.pcm(f"r{number}")).tolist())
        assert loudness <= {LOUDNESS + number + 1}
    assert sum(len(driver.pcm(f"r{number}")) > 0 for number in range(20)) > 10
    driver.settled()


@pytest.mark.slow
@pytest.mark.parametrize("times", [QUICK, SLOW_CODEC, SLOW, UNSTEADY])
@pytest.mark.parametrize("live", [True, False])
def test_an_end_found_a_batch_late_loses_no_row_and_adds_no_sample(
    tiny: Path, times: Times, live: bool
) -> None:
    """The model ends each segment early, with text left: the text goes on in the next one."""

    def run(given: Times, end_at: int) -> tuple[FlyingDriver, ToneRunner]:
        def ends(serial: int, frame: int, may_end: bool) -> bool:
            return may_end and (frame > 60 if serial == 1 else frame % 15 == end_at)

        driver, tone = toned(given, ToneRunner(ends), model=tiny)
        driver.submit(spoken(TEXT, "warm", live=False))  # the engine learns how long batches take
        driver.finish("warm")
        driver.submit(spoken(TEXT, live=live))
        driver.finish("a")
        return driver, tone

    voids = 0
    for end_at in (1, 2, 5, 9, 14):
        (driver, tone), (reference, wanted) = run(times, end_at), run(AT_ONCE, end_at)
        assert tone.rows == wanted.rows
        assert_same_speech(driver, reference)
        driver.settled()
        voids += sum(any(batch.void) for batch in driver.device.launches)
    if times == SLOW and not live:
        assert voids > 0, "no batch flew behind an end"


@pytest.mark.parametrize("times", ALL)
@pytest.mark.parametrize("max_frames", [1, 2, 7, 20])
def test_max_frames_is_exact_in_flight(times: Times, max_frames: int) -> None:
    driver, tone = toned(times)
    driver.submit(spoken(max_frames=max_frames))
    driver.finish("a")
    assert driver.done("a").reason == "length"
    assert driver.done("a").num_frames == tone.frames[1] == max_frames
    assert len(driver.pcm("a")) == max_frames * FRAME_SAMPLES
    driver.settled()


@pytest.mark.parametrize("times", ALL)
@pytest.mark.parametrize("past", [-1, 0, 1, 2])
def test_end_of_speech_near_the_limit_is_told_alike(times: Times, past: int) -> None:
    """The model ends at frame 12; the limit is one less, the same, one and two more."""

    def run(given: Times) -> Done:
        driver, _ = toned(given, ToneRunner(lambda _, frame, may_end: frame == 12))
        driver.submit(spoken("Hello", max_frames=12 + past))
        driver.finish("a")
        driver.settled()
        return driver.done("a")

    assert run(times) == run(AT_ONCE)


@pytest.mark.slow
@pytest.mark.parametrize("times", [QUICK, SLOW, UNSTEADY])
def test_segments_go_on_in_flight(times: Times) -> None:
    text = "This is one sentence of a long story. " * 5
    submit = spoken(text, sampling=Sampling(temperature=0.4))
    drivers: list[Driver] = [Driver(Profile(segment_frames=60))]
    drivers.append(FlyingDriver(times, Profile(segment_frames=60)))
    for driver in drivers:
        driver.submit(submit)
        driver.finish("a")
        assert driver.engine.metrics.prefill_rows >= 3
    assert_same_speech(drivers[1], drivers[0])
    assert "".join(word.text for word in drivers[1].words("a")) == text
    assert drivers[1].listeners["a"].gaps == []


@pytest.mark.parametrize("times", ALL)
def test_a_runaway_segment_is_stopped_alike(times: Times) -> None:
    def run(given: Times) -> tuple[Done, dict[int, list[int]]]:
        driver, tone = toned(given, ToneRunner(lambda *_: False))
        driver.submit(spoken("Hello there."))
        driver.finish("a")
        driver.settled()
        return driver.done("a"), tone.rows

    done, rows = run(times)
    assert done.reason == "length"
    reference, wanted = run(AT_ONCE)
    assert done == reference and rows == wanted


@pytest.mark.parametrize("times", [QUICK, SLOW_CODEC, UNSTEADY])
@pytest.mark.parametrize("cut", [16, 23])
def test_late_text_is_awaited_and_nothing_is_lost_in_flight(times: Times, cut: int) -> None:
    driver, _ = toned(times)
    driver.submit(spoken(SHORT[:cut], closed=False))
    driver.run(3.0)
    starved = [r for r in driver.results["a"] if isinstance(r, Starved)]
    assert starved and starved[-1].end_sample == len(driver.pcm("a"))
    assert not driver.device.held
    driver.engine.post(Append("a", SHORT[cut:]))
    driver.engine.post(Close("a"))
    driver.finish("a")
    assert "".join(word.text for word in driver.words("a")) == SHORT
    assert driver.listeners["a"].gaps == []
    assert driver.engine.metrics.late_chunks == 0
    driver.settled()


def test_a_batch_that_fails_in_flight_ends_its_requests_only() -> None:
    driver, _ = toned(QUICK)
    driver.submit(spoken(request_id="a"))
    driver.run(0.1)
    driver.device.fault = RuntimeError("a batch was lost")
    driver.finish("a")
    failed = driver.results["a"][-1]
    assert isinstance(failed, Failed) and failed.code == "engine_failure"
    driver.submit(spoken(request_id="b"))
    driver.finish("b")
    assert driver.done("b").reason == "stop"
    driver.settled()


def test_a_broken_device_fails_every_request_once() -> None:
    driver, _ = toned(QUICK)
    for name in ("a", "b"):
        driver.submit(spoken(request_id=name))
    driver.run(0.1)
    driver.device.fault = DeviceFault("the device is gone")
    with pytest.raises(DeviceFault):
        driver.run(2.0)
    for name in ("a", "b"):
        ends = [r for r in driver.results[name] if isinstance(r, Done | Failed)]
        assert len(ends) == 1 and isinstance(ends[0], Failed)


def test_speech_that_waits_for_more_comes_out_when_there_is_none(tiny: Path) -> None:
    """One frame lasts shorter than this device needs for the next, which is the end."""
    runner = ToneRunner(ends=lambda serial, frame, may_end: frame >= 1)
    driver, _ = toned(Times(0.3, 0.01), runner, model=tiny)
    driver.submit(spoken("Oh."))
    driver.run(0.4)
    assert driver.device.held and not driver.chunks("a")
    driver.finish("a")
    assert len(driver.pcm("a")) == FRAME_SAMPLES == driver.done("a").num_samples
    driver.settled()

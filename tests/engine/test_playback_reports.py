"""Reports of playback that come in one step are written together, as if one by one."""

from dataclasses import replace

import pytest

from playhead.engine.messages import ClockState, Playback, PlaybackSnapshot
from tests.engine.driver import Driver, spoken


def heard(*names: str) -> Driver:
    """Streams of which some audio is out, and no report is waiting."""
    driver = Driver()
    for name in names:
        driver.submit(spoken(request_id=name))
    for _ in range(200):
        driver.step()
        if all(driver.chunks(name) for name in names):
            return driver
    raise AssertionError("no audio came")


def report(
    driver: Driver, name: str, state: ClockState, left_s: float, unpushed: int = 0
) -> PlaybackSnapshot:
    """A sender that goes on for `left_s` and was not yet given the last `unpushed` samples."""
    pushed, now_s = len(driver.pcm(name)) - unpushed, driver.now_s
    return PlaybackSnapshot(
        name, now_s, pushed, pushed, now_s + left_s, 0.0, pushed, state, "exact"
    )


def slack_s(driver: Driver, name: str) -> float:
    engine = driver.engine
    return engine._table.slack_s(engine._requests[name].slot, driver.now_s)


def test_reports_of_many_are_each_taken_for_their_own_listener() -> None:
    driver = heard("a", "b", "c")
    engine = driver.engine
    snapshots = [
        report(driver, "a", "playing", 0.3, unpushed=2400),
        report(driver, "b", "paused", 0.2),
        report(driver, "c", "playing", 0.7),
    ]
    before = engine.metrics.clock_exact
    for snapshot in snapshots:
        engine.post(Playback(snapshot))
    engine.post(Playback(replace(snapshots[0], request_id="nobody")))
    engine._drain(driver.now_s)
    assert engine.metrics.clock_exact == before + 3
    assert slack_s(driver, "a") == pytest.approx(0.3 + 0.1)
    assert slack_s(driver, "b") == pytest.approx(0.2)
    assert slack_s(driver, "c") == pytest.approx(0.7)
    driver.now_s += 0.1
    assert slack_s(driver, "b") == pytest.approx(0.2), "it stands still"
    assert slack_s(driver, "c") == pytest.approx(0.6)


def test_two_reports_of_one_listener_in_a_step_are_taken_in_order() -> None:
    driver = heard("a")
    driver.engine.post(Playback(report(driver, "a", "playing", 0.1)))
    driver.engine._drain(driver.now_s)
    driver.now_s += 1.0
    # It was paused meanwhile: what it plays now was not late all the time.
    driver.engine.post(Playback(report(driver, "a", "paused", 0.0)))
    driver.engine.post(Playback(report(driver, "a", "playing", 0.0)))
    driver.engine._drain(driver.now_s)
    assert slack_s(driver, "a") == pytest.approx(0.0)


def test_one_that_ran_dry_unseen_is_late_since_then() -> None:
    driver = heard("a")
    driver.engine.post(Playback(report(driver, "a", "playing", 0.1)))
    driver.engine._drain(driver.now_s)
    driver.now_s += 1.0
    driver.engine.post(Playback(report(driver, "a", "playing", 0.0)))
    driver.engine._drain(driver.now_s)
    assert slack_s(driver, "a") == pytest.approx(-0.9)


def test_a_file_of_a_turn_that_may_not_come_is_no_listener() -> None:
    driver = Driver()
    driver.submit(spoken(request_id="maybe", speculative=True), subscribed=False)
    driver.submit(spoken(request_id="file", speculative=True, live=False))
    driver.step()
    driver.engine.post(Playback(report(driver, "file", "playing", 0.0)))
    driver.step()
    metrics = driver.engine.metrics
    assert (metrics.speculative, metrics.offline, metrics.live) == (1, 1, 0)

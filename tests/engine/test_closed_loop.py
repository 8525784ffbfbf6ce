"""The loop from the listener back to the scheduler: who listens how decides what is made when."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from playhead.engine.clock import PlaybackClock
from playhead.engine.messages import Pcm, Playback, Result, Submit
from playhead.engine.profile import Profile
from playhead.engine.receiver import ReceiverEstimate, ReceiverReport
from playhead.engine.units import FRAME_S, SAMPLE_BYTES, SAMPLE_RATE_HZ, samples_to_s
from playhead.worker.http.pace import ClientClock
from tests.engine.driver import Driver
from tests.engine.flying import FlyingDriver, Times, ToneRunner

SENTENCE = "The evening train leaves from the main station at a quarter past nine. "
QUICK = Times(0.006, 0.004)
BUILDING_S = 3.0
"""In which the first audio ahead of a listener is made."""


def spoken(request_id: str, text: str = SENTENCE * 3, **given: object) -> Submit:
    values = {"text": text, "closed": True, "seed": 5} | given
    return Submit(request_id=request_id, **values)  # type: ignore[arg-type]


def toned(times: Times = QUICK, profile: Profile | None = None, kind: Any = FlyingDriver) -> Any:
    tone = ToneRunner()
    return kind(times, profile, lambda *_: tone)


# -- listeners that stand still


@pytest.mark.parametrize("how", ["paused", "not subscribed"])
@pytest.mark.parametrize("times", [QUICK, Times(0.03, 0.02), Times(0.0, 0.0)])
def test_a_listener_that_stands_still_costs_no_step_and_loses_nothing(
    how: str, times: Times
) -> None:
    driver = toned(times)
    reference = toned(times)
    reference.submit(spoken("a", live=False))
    reference.finish("a")
    driver.submit(spoken("a"), subscribed=how != "not subscribed")
    clock = driver.listeners["a"]
    if how == "paused":
        driver.run(1.0)
        driver.land()
        clock.pause(driver.now_s)
    driver.run(5.0)  # long enough to fill what may be made ahead
    num_launches = len(driver.device.launches)
    held_s = samples_to_s(len(driver.pcm("a")) - clock.exited_samples(driver.now_s))
    driver.run(30.0)
    assert len(driver.device.launches) == num_launches, "steps for somebody who does not listen"
    assert held_s <= driver.engine.profile.target_s + 2 * FRAME_S
    clock.start() if how == "not subscribed" else clock.resume()
    driver.catch_up("a")
    driver.finish("a")
    assert np.array_equal(driver.pcm("a"), reference.pcm("a"))
    assert driver.words("a") == reference.words("a")
    assert clock.gaps == [] and driver.engine.metrics.late_chunks == 0
    assert clock.pushed_samples == driver.done("a").num_samples
    driver.settled()


def test_a_listener_that_stands_still_slows_nobody_else() -> None:
    driver = toned()
    driver.submit(spoken("still"), subscribed=False)
    driver.submit(spoken("a"))
    driver.finish("a")
    assert driver.listeners["a"].gaps == []
    assert not driver.ended("still")


@pytest.mark.slow
@pytest.mark.parametrize("dt_s", [0.01, 0.05])
def test_every_chunk_that_comes_after_its_listener_ran_dry_is_counted(dt_s: float) -> None:
    """The device is a quarter too slow; the listener is looked at before and after it ran dry."""
    driver = toned(Times(0.1, 0.01))
    driver.submit(spoken("a"))
    driver.finish("a", dt_s=dt_s)
    driver.land()
    metrics, gaps = driver.engine.metrics, driver.listeners["a"].gaps
    assert len(gaps) > 10
    assert metrics.late_chunks == len(gaps)
    assert metrics.late_s == pytest.approx(sum(gap.duration_s for gap in gaps), rel=0.05)


# -- listeners whose clock runs faster or slower


@dataclass
class Player:
    """What a client's sound card plays of what it was sent, at its own rate."""

    rate: float
    dry_s: float = 0.0
    sent: int = 0
    first_s: float | None = None
    underruns: int = 0
    least_s: float = 1e9

    def take(self, num_samples: int, now_s: float) -> None:
        if self.first_s is None:
            self.first_s = self.dry_s = now_s
        elif now_s > self.dry_s:
            self.underruns += 1
        elif now_s > self.first_s + BUILDING_S:
            self.least_s = min(self.least_s, self.dry_s - now_s)
        self.dry_s = max(self.dry_s, now_s) + samples_to_s(num_samples) / self.rate
        self.sent += num_samples

    def played(self, now_s: float) -> int:
        left = max(self.dry_s - now_s, 0.0) * self.rate * SAMPLE_RATE_HZ
        return max(self.sent - round(left), 0)


class ClientDriver(FlyingDriver):
    """One client behind a connection, with a player whose rate the engine does not know."""

    reports = False

    def attach(self, rate: float, reports: bool) -> None:
        self.clock, self.player, self.reports = ClientClock(), Player(rate), reports
        self._report_s = 0.0

    def _take(self, results: list[Result]) -> None:
        super()._take(results)
        for result in results:
            if isinstance(result, Pcm):
                num_samples = len(result.pcm) // SAMPLE_BYTES
                self.clock.push(num_samples, self.now_s)
                self.player.take(num_samples, self.now_s)

    def step(self, dt_s: float = 0.04) -> None:
        if self.reports and self.now_s - self._report_s >= 0.25 and self.player.sent:
            problem = self.clock.report(self.player.played(self.now_s), False, self.now_s)
            assert problem is None, problem
            self._report_s = self.now_s
        self.engine.post(Playback(self.clock.snapshot("a", self.now_s)))
        super().step(dt_s)


@pytest.mark.slow
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("drift", [500e-6, -500e-6])
def test_a_drifting_clock_never_runs_dry_in_three_minutes(drift: float, reports: bool) -> None:
    driver = toned(kind=ClientDriver)
    driver.attach(1.0 + drift, reports)
    driver.engine.post(spoken("a", SENTENCE * 46))
    driver.finish("a", limit_s=400.0, dt_s=0.04)
    assert samples_to_s(driver.done("a").num_samples) > 180.0
    assert driver.player.underruns == 0
    profile = driver.engine.profile
    drifted_s = 0.0 if reports else max(drift, 0.0) * 180.0
    assert driver.player.least_s > profile.guard_s - drifted_s - 0.01
    # what was sent ahead and not yet played stays within the target as well
    ahead_s = driver.player.dry_s - driver.now_s
    slower_s = 0.0 if reports else max(-drift, 0.0) * 200.0
    assert ahead_s <= profile.target_s + 3 * FRAME_S + slower_s


# -- receivers that are better or worse


def least_slack_s(reports: ReceiverReport, times: Times) -> tuple[float, int]:
    """Return the least audio a listener held while others joined all the time, and its gaps."""
    driver = toned(times, Profile(busy_limit=1.0, low_s=0.2, guard_s=0.16))
    driver.submit(spoken("a", SENTENCE * 6))
    clock: PlaybackClock = driver.listeners["a"]
    clock.receiver = ReceiverEstimate()
    least_s, joined = 1e9, 0
    driver.run(1.0)
    start_s = driver.now_s
    while not driver.ended("a"):
        if driver.now_s - start_s > 0.04 * joined:
            joined += 1
            driver.submit(spoken(f"j{joined}", "Hello."))
        clock.receiver.report(reports, driver.now_s)
        driver.step(0.01)
        if driver.engine._requests.get("a") is not None and driver.engine.metrics.live > 1:
            published = len(driver.pcm("a"))
            if published > clock.exited_samples(driver.now_s):
                least_s = min(least_s, clock.dry_at_s(driver.now_s) - driver.now_s)
    return least_s, len(clock.gaps)


@pytest.mark.slow
def test_the_lead_follows_the_reports_when_others_wait_for_their_first_audio() -> None:
    """A receiver that hides a late packet lends its time to a starter; one that conceals keeps it.

    The reports are those of a clean link, and of one with 80 +- 30 ms and 3 % loss.
    """
    clean = ReceiverReport(jitter_buffer_s=0.03, target_s=0.03, rtt_s=0.002)
    lossy = ReceiverReport(jitter_buffer_s=0.11, target_s=0.1, rtt_s=0.16, concealed_s=0.04)
    lent_s, gaps = least_slack_s(clean, Times(0.03, 0.012))
    kept_s, lossy_gaps = least_slack_s(lossy, Times(0.03, 0.012))
    assert gaps == lossy_gaps == 0
    assert kept_s > lent_s + 0.02, (kept_s, lent_s)


# -- work without a listener


@pytest.mark.slow
def test_offline_work_never_changes_the_audio_of_a_live_stream() -> None:
    """Files come and go beside it, in batches of every size; the real model, on a clock."""
    text = "Thanks for calling. How can I help you today?"
    alone = Driver()
    alone.submit(spoken("a", text, live=False))
    alone.finish("a")
    driver = FlyingDriver(Times(0.012, 0.008, spread=0.5))
    driver.submit(spoken("a", text))
    for number in range(6):
        driver.submit(spoken(f"f{number}", "A file beside it. ", live=False, seed=number))
        driver.run(0.3)
    driver.finish("a")
    assert len(driver.pcm("a")) == len(alone.pcm("a"))
    assert np.allclose(driver.pcm("a"), alone.pcm("a"), rtol=0, atol=1e-4 * 32_767)
    assert driver.listeners["a"].gaps == []
    assert driver.engine.metrics.late_chunks == 0

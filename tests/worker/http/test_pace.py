"""ClientClock: playback as assumed from what was taken, and as reported."""

import pytest

from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.http.pace import ClientClock

S = SAMPLE_RATE_HZ


def test_plays_in_real_time_from_the_first_take() -> None:
    clock = ClientClock()
    clock.push(S, 10.0)
    assert clock.played_samples(10.0) == 0
    assert clock.played_samples(10.5) == S // 2
    snapshot = clock.snapshot("r", 10.5)
    assert (snapshot.pushed_samples, snapshot.heard_samples) == (S, S // 2)
    assert snapshot.dry_at_s == pytest.approx(11.0)
    assert (snapshot.state, snapshot.source) == ("playing", "assumed")


def test_a_late_take_starts_anew_where_it_was_dry() -> None:
    clock = ClientClock()
    clock.push(S, 10.0)
    clock.push(S, 12.0)  # dry since 11.0
    assert clock.played_samples(12.5) == S + S // 2
    assert clock.played_samples(20.0) == 2 * S


def test_stands_still_when_blocked_and_dry() -> None:
    clock = ClientClock()
    clock.push(S, 10.0)
    clock.blocked = True
    assert clock.snapshot("r", 10.5).state == "playing"  # it still has something to play
    dry = clock.snapshot("r", 13.0)
    assert (dry.state, dry.dry_at_s) == ("paused", 13.0)


def test_reports_are_believed_within_what_was_sent() -> None:
    clock = ClientClock()
    clock.push(2 * S, 10.0)
    assert clock.report(S // 2, False, 11.0) is None
    assert clock.played_samples(11.5) == S
    assert clock.snapshot("r", 11.5).source == "reported"
    assert clock.snapshot("r", 15.0).source == "assumed"
    assert clock.report(S, True, 12.0) is None
    assert clock.played_samples(99.0) == S
    assert clock.snapshot("r", 99.0).state == "paused"
    absurd = clock.report(2 * S + 1, False, 12.0)
    assert absurd is not None and str(2 * S) in absurd


def test_a_later_segment_counts_from_its_own_first_sample() -> None:
    clock = ClientClock()
    clock.push(S, 10.0)
    ahead = clock.snapshot("r", 10.5, base_samples=S)
    assert (ahead.pushed_samples, ahead.exited_samples) == (0, 0)
    assert ahead.dry_at_s == pytest.approx(11.0)  # what plays before it is still slack
    clock.push(S, 10.5)
    assert clock.snapshot("r", 11.5, base_samples=S).heard_samples == S // 2

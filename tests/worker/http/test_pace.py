"""ClientClock: playback as assumed from what was taken, and as reported; Pacer: what is told."""

import asyncio
from typing import Any

import pytest

from playhead.engine.messages import PlaybackSnapshot
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.http import pace
from playhead.worker.http.pace import ClientClock, Pacer

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


class Told:
    """Stands for the utterance: keeps what its engine would be told."""

    request_id = "r"

    def __init__(self) -> None:
        self.snapshots: list[PlaybackSnapshot] = []

    def report(self, snapshot: PlaybackSnapshot) -> None:
        self.snapshots.append(snapshot)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pace, "TICK_S", 0.01)
    return Told()


def unstalled() -> None:
    raise AssertionError("nobody stalled")


def test_the_engine_is_told_of_playback_only_what_it_could_not_know(told: Any) -> None:
    pacer = Pacer(ClientClock(), 60)
    with pacer.following(told):
        for _ in range(50):
            pacer.took(60 * S)
        assert [each.pushed_samples for each in told.snapshots] == [60 * S]
        pacer.clock._from_s -= 50 * 60 + 1  # all of it was played: the next chunk begins anew
        pacer.took(60 * S)
        pacer.took(60 * S)
        assert [each.pushed_samples for each in told.snapshots] == [60 * S, 51 * 60 * S]
        pacer.clock._from_s -= 30
    last = told.snapshots[-1]
    assert (len(told.snapshots), last.pushed_samples) == (3, 52 * 60 * S)
    assert 30 * S <= last.heard_samples - 50 * 60 * S < 52 * S  # what it heard when it was dropped
    pacer.tell()
    assert len(told.snapshots) == 3


async def test_a_client_that_takes_nothing_is_told_of_until_it_takes_again(told: Any) -> None:
    pacer = Pacer(ClientClock(), 60)
    with pacer.following(told):
        pacer.took(1)
        with pacer.waiting(unstalled):
            while len(told.snapshots) < 4:
                await asyncio.sleep(0.001)
        assert told.snapshots[-1].state == "paused"
        pacer.took(60 * S)
        assert (told.snapshots[-1].state, told.snapshots[-1].pushed_samples) == (
            "playing",
            60 * S + 1,
        )
        count = len(told.snapshots)
        with pacer.waiting(unstalled):
            pass
        pacer.took(S)
        await asyncio.sleep(0.03)  # no timer is left
        assert len(told.snapshots) == count


async def test_a_client_that_takes_nothing_for_too_long_is_given_up(told: Any) -> None:
    stalled = asyncio.Event()
    pacer = Pacer(ClientClock(), 0.02)
    with pacer.waiting(stalled.set):
        await asyncio.wait_for(stalled.wait(), 10)

"""What is counted of a load: every planned request, gaps of a player without a buffer."""

import math
from dataclasses import replace

import pytest

from playhead.worker.bench.plan import Load, Planned, plan
from playhead.worker.bench.player import (
    Outcome,
    account,
    figures_of,
    most_live,
    nearest_rank,
    play,
)

FRAME_S = 0.08


def spoken(number: int, sent_s: float = 0.0, wait_s: float = 0.02, frames: int = 63) -> Outcome:
    """An answer whose frames come one by one, always a moment before they are needed."""
    first_s = sent_s + wait_s
    chunks = [(first_s + max(i - 1, 0) * FRAME_S, 1920) for i in range(frames)]
    return Outcome(number, "done", 0.0, sent_s, chunks, chunks[-1][0])


def plans(count: int) -> list[Planned]:
    found = plan(Load(50, warm_up_s=0.0, window_s=30.0))[:count]
    assert len(found) == count
    return found


def test_an_answer_in_time_has_no_gap_and_its_first_sample_is_its_latency() -> None:
    outcome = spoken(0, sent_s=3.0, wait_s=0.03)
    assert play(outcome).gaps == 0 and outcome.first_pcm_s == pytest.approx(0.03)


def test_every_late_chunk_is_a_gap_of_its_own_length() -> None:
    outcome = Outcome(0, "done", 0.0, 0.0, [(1.0, 1920), (1.1, 1920), (1.18, 1920), (1.5, 1920)])
    told = play(outcome)
    assert told.gaps == 2
    assert told.gap_s == pytest.approx(0.02 + 0.24)


def test_audio_left_at_hanging_up_is_unheard() -> None:
    outcome = Outcome(0, "hung_up", 0.0, 0.0, [(1.0, 48_000)], ended_s=1.5)
    assert play(outcome).unheard_s == pytest.approx(1.5)
    assert play(replace(outcome, state="done")).unheard_s == 0.0


def test_every_planned_request_is_counted_once() -> None:
    refused, failed = Outcome(1, "refused"), Outcome(2, "failed", error="500: x")
    told = account(plans(5), [spoken(0), refused, failed, spoken(3, frames=20)], least_frames=62)
    counts = (told.planned, told.done, told.refused, told.failed, told.short, told.lost)
    assert counts == (5, 1, 1, 1, 1, 1)
    assert sum(counts[1:]) == told.planned and not told.whole
    assert told.errors == ("500: x",)


def test_one_dropped_request_turns_a_whole_load_red() -> None:
    outcomes = [spoken(each.number) for each in plans(40)]
    assert account(plans(40), outcomes, 62).whole
    told = account(plans(40), outcomes[:-1], 62)
    assert told.lost == 1 and not told.whole and math.inf in told.first_pcm_s


def test_a_request_without_audio_is_infinitely_late() -> None:
    outcomes = [spoken(each.number, wait_s=0.01) for each in plans(20)]
    outcomes[3] = Outcome(3, "refused")
    outcomes[4] = Outcome(4, "failed")
    told = figures_of([account(plans(20), outcomes, 62)], "10rps")
    assert told["first_pcm_p50_ms_10rps"] == pytest.approx(10.0)
    assert "first_pcm_p95_ms_10rps" not in told and "first_pcm_max_ms_10rps" not in told
    assert (told["refused_10rps"], told["failed_10rps"], told["planned_10rps"]) == (1, 1, 20)


def test_the_warm_up_is_counted_and_not_in_the_percentiles() -> None:
    requests = [replace(each, measured=each.number > 0) for each in plans(3)]
    outcomes = [spoken(0, wait_s=9.0), spoken(1), spoken(2)]
    told = account(requests, outcomes, 62)
    assert told.planned == 3 and told.first_pcm_s == pytest.approx((0.02, 0.02))


def test_figures_pool_the_seeds_and_are_finite() -> None:
    loads = [
        account(plans(10), [spoken(each.number, wait_s=wait_s) for each in plans(10)], 62)
        for wait_s in (0.01, 0.03)
    ]
    told = figures_of(loads, "silent")
    assert told["first_pcm_p50_ms_silent"] == pytest.approx(10.0)
    assert told["first_pcm_max_ms_silent"] == pytest.approx(30.0)
    assert told["planned_silent"] == 20 and told["underruns_silent"] == 0
    assert all(math.isfinite(value) for value in told.values())


def test_nearest_rank_is_a_value_that_was_there() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [nearest_rank(values, share) for share in (0.2, 0.5, 0.95, 1.0)] == [1, 3, 5, 5]
    assert nearest_rank([], 0.5) == math.inf


def test_most_live_counts_streams_that_overlap() -> None:
    a, b, c = spoken(0, 0.0, frames=10), spoken(1, 0.5, frames=10), spoken(2, 3.0, frames=10)
    assert most_live([a, b, c]) == 2 and most_live([]) == 0

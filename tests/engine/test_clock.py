"""PlaybackClock: arithmetic of runs, gaps, pauses and the ear, by table and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.engine.clock import GAP_FLOOR_S, PlaybackClock, total_s
from playhead.engine.receiver import (
    BRIDGE_PRIOR_S,
    EXPAND_S,
    MAX_BRIDGE_S,
    PACKET_PATH_S,
    PRIOR_S,
    REPORT_LIFE_S,
    ReceiverEstimate,
    ReceiverReport,
)
from playhead.engine.units import s_to_samples, samples_to_s


def playing() -> PlaybackClock:
    clock = PlaybackClock("r", ReceiverEstimate())
    clock.start()
    return clock


def test_samples_exit_in_real_time() -> None:
    clock = playing()
    clock.push(24_000, exit_s=10.0, now_s=10.0)
    assert clock.exited_samples(9.9) == 0
    assert clock.exited_samples(10.5) == 12_000
    assert clock.exited_samples(12.0) == 24_000
    assert clock.dry_at_s(10.2) == pytest.approx(11.0)


def test_queued_chunk_joins_the_run_without_a_gap() -> None:
    clock = playing()
    clock.push(2_400, 10.0, 10.0)
    clock.push(2_400, 10.1, 10.02)
    assert clock.gaps == []
    assert clock.exited_samples(10.15) == 3_600


def test_late_chunk_is_a_gap_of_its_lateness() -> None:
    clock = playing()
    clock.push(2_400, 10.0, 10.0)
    clock.push(2_400, 10.3, 10.3)
    assert [round(gap.duration_s, 3) for gap in clock.gaps] == [0.2]
    assert clock.gaps[0].at_sample == 2_400
    assert clock.exited_samples(10.2) == 2_400


def test_silence_while_text_is_awaited_is_no_gap() -> None:
    clock = playing()
    clock.push(2_400, 10.0, 10.0)
    clock.starve()
    clock.push(2_400, 13.0, 13.0)
    assert clock.gaps == clock.stretches == []
    assert [round(wait.duration_s, 3) for wait in clock.text_waits] == [2.9]


def test_withheld_time_is_a_stretch_and_no_gap() -> None:
    clock = playing()
    clock.push(2_400, 10.0, 10.0)
    clock.push(2_400, 10.15, 10.15, withheld=True)
    clock.push(2_400, 10.40, 10.40)
    assert [(s.at_sample, round(s.duration_s, 3)) for s in clock.stretches] == [(2_400, 0.05)]
    assert [(g.at_sample, round(g.duration_s, 3)) for g in clock.gaps] == [(4_800, 0.15)]
    assert clock.exited_samples(10.16) == 2_640, "the sender's time stood still"


def test_withheld_time_is_no_stretch_when_text_was_awaited_or_it_was_cut() -> None:
    for why in ("starve", "clear", "pause"):
        clock = playing()
        clock.push(2_400, 10.0, 10.0)
        clock.starve() if why == "starve" else getattr(clock, why)(10.1)
        clock.resume()
        clock.push(2_400, 10.5, 10.5, withheld=True)
        assert clock.stretches == clock.gaps == [] and len(clock.text_waits) == (why == "starve")


def test_clear_takes_back_what_has_not_left() -> None:
    clock = playing()
    clock.push(24_000, 10.0, 10.0)
    assert clock.clear(10.25) == 18_000
    assert clock.pushed_samples == 6_000
    assert clock.exited_samples(20.0) == 6_000


def test_pause_and_resume_lose_nothing_and_count_no_gap() -> None:
    clock = playing()
    clock.push(24_000, 10.0, 10.0)
    taken_back = clock.pause(10.5)
    assert (taken_back, clock.state) == (12_000, "paused")
    assert clock.pause(10.6) == 0
    clock.resume()
    clock.push(taken_back, 12.0, 12.0)
    assert clock.gaps == []
    assert clock.exited_samples(12.5) == 24_000


def test_heard_trails_exit_by_the_prior_without_reports() -> None:
    clock = playing()
    clock.push(24_000, 10.0, 10.0)
    assert clock.heard_samples(10.5) == s_to_samples(0.5 - PRIOR_S["web"])
    assert clock.snapshot(10.5).source == "assumed"


def test_heard_follows_reports_while_they_come() -> None:
    receiver = ReceiverEstimate()
    report = ReceiverReport(jitter_buffer_s=0.03, target_s=0.01, rtt_s=0.02)
    receiver.report(report, 10.0)
    assert receiver.delay_s(10.1) == pytest.approx(PACKET_PATH_S + 0.01 + 0.03)
    assert receiver.bridge_s(10.1) == pytest.approx(0.01 + EXPAND_S)
    late_s = 10.0 + REPORT_LIFE_S + 0.1
    assert receiver.delay_s(late_s) == PRIOR_S["web"]
    assert receiver.bridge_s(late_s) == BRIDGE_PRIOR_S


def test_bridge_is_clamped_and_gone_after_concealment() -> None:
    receiver = ReceiverEstimate()
    receiver.report(ReceiverReport(0.03, 0.5, 0.02), 1.0)
    assert receiver.bridge_s(1.0) == MAX_BRIDGE_S
    receiver.report(ReceiverReport(0.03, 0.5, 0.02, concealed_s=0.1), 1.2)
    assert receiver.bridge_s(1.2) == 0.0


def test_one_noisy_round_trip_does_not_move_the_estimate() -> None:
    receiver = ReceiverEstimate()
    for i in range(9):
        receiver.report(ReceiverReport(0.03, 0.04, 0.02), i * 0.25)
    steady_s = receiver.delay_s(2.0)
    receiver.report(ReceiverReport(0.03, 0.04, 0.9), 2.25)
    assert receiver.delay_s(2.25) == pytest.approx(steady_s)


@pytest.mark.parametrize("value", [-0.1, 9.0, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["jitter_buffer_s", "target_s", "rtt_s", "playout_s"])
def test_absurd_report_is_named(field: str, value: float) -> None:
    values = {"jitter_buffer_s": 0.03, "target_s": 0.04, "rtt_s": 0.02, field: value}
    problem = ReceiverReport(**values).problem()
    assert problem is not None and field in problem


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["in time", "withheld", "silent", "starved"]),
            st.integers(1, 4_800),
            st.floats(GAP_FLOOR_S * 2, 0.5),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_sound_and_breaks_of_every_kind_fill_the_time(chunks: list[tuple[str, int, float]]) -> None:
    clock, end_s, first_s = playing(), 10.0, 10.0
    expected = {"withheld": 0.0, "silent": 0.0, "starved": 0.0}
    for number, (kind, num_samples, late_s) in enumerate(chunks):
        late_s = late_s if number and kind != "in time" else 0.0
        if late_s:
            expected[kind] += late_s
        if kind == "starved":
            clock.starve()
        clock.push(num_samples, end_s + late_s, end_s + late_s, withheld=kind == "withheld")
        end_s += late_s + samples_to_s(num_samples)
    told = {"withheld": clock.stretches, "silent": clock.gaps, "starved": clock.text_waits}
    for kind, breaks in told.items():
        assert total_s(breaks) == pytest.approx(expected[kind], abs=1e-6)
    spoken_s = samples_to_s(clock.pushed_samples)
    assert clock.dry_at_s(0.0) - first_s == pytest.approx(spoken_s + sum(expected.values()))


Step = tuple[str, float, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["push", "clear", "pause", "resume", "starve", "report"]),
        st.floats(0.0, 0.4),
        st.integers(1, 9_600),
    ),
    max_size=40,
)


@given(steps)
def test_counts_stay_ordered_and_never_fall_between_clears(script: list[Step]) -> None:
    """0 <= heard <= exited <= pushed at every moment; heard and exited are monotonic."""
    clock, now_s, exited, heard = playing(), 100.0, 0, 0
    for action, wait_s, amount in script:
        now_s += wait_s
        if action == "push" and clock.state == "playing":
            clock.push(amount, clock.dry_at_s(now_s), now_s)
        elif action == "clear":
            clock.clear(now_s)
        elif action == "pause":
            clock.pause(now_s)
        elif action == "resume":
            clock.resume()
        elif action == "starve":
            clock.starve()
        elif action == "report":
            delay_s = samples_to_s(amount)
            clock.receiver.report(ReceiverReport(delay_s, delay_s, delay_s), now_s)
        snapshot = clock.snapshot(now_s)
        counts = (snapshot.heard_samples, snapshot.exited_samples, snapshot.pushed_samples)
        assert 0 <= counts[0] <= counts[1] <= counts[2]
        assert snapshot.exited_samples >= exited
        assert snapshot.heard_samples >= heard
        assert snapshot.dry_at_s >= now_s
        exited, heard = snapshot.exited_samples, snapshot.heard_samples


def test_silence_between_speeches_tells_nothing_of_the_buffer() -> None:
    receiver = ReceiverEstimate()
    receiver.report(ReceiverReport(0.02, 0.02, 0.0, audio_s=0.04), 0.0)
    early_s = receiver.delay_s(0.0)
    for i in range(8):
        receiver.report(ReceiverReport(0.06, 0.06, 0.0), 1.0 + i * 0.25)
    speaking_s = receiver.delay_s(2.75)
    for i in range(20):
        receiver.report(ReceiverReport(0.02, 0.02, 0.0, audio_s=0.04), 3.0 + i * 0.25)
    assert receiver.source(7.75) == "reported"
    assert receiver.delay_s(7.75) == speaking_s == pytest.approx(early_s + 0.04)


def test_first_report_of_a_speech_replaces_those_before_the_silence() -> None:
    receiver = ReceiverEstimate()
    for i in range(8):
        receiver.report(ReceiverReport(0.02, 0.02, 0.0), i * 0.25)
    before_s = receiver.delay_s(1.75)
    receiver.report(ReceiverReport(0.02, 0.02, 0.0, audio_s=0.0), 4.0)
    receiver.report(ReceiverReport(0.10, 0.10, 0.0), 5.0)
    assert receiver.delay_s(5.0) == pytest.approx(before_s + 0.08)

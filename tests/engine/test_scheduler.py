"""schedule(): order of classes, hold-back, chunk growth, wake-up; by table and by simulation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from playhead.engine.admission import StepCosts, busy_share, retry_s
from playhead.engine.profile import Profile
from playhead.engine.scheduler import LIVE, OFFLINE, SPECULATIVE, Columns, Plan, schedule
from playhead.engine.units import FRAME_S

PROFILE = Profile(max_rows=4, flat_rows=2)
NOW_S = 100.0


def row(**given: object) -> dict[str, object]:
    """A live stream in the middle of an utterance with 0.6 s ahead, unless told otherwise."""
    values: dict[str, object] = {
        "kind": LIVE,
        "arrival_s": NOW_S - 5.0,
        "audible": True,
        "needs_prefill": False,
        "can_frame": True,
        "undecoded": 0,
        "flying": 0,
        "lands_s": 0.0,
        "slack_s": 0.6,
        "bridge_s": 0.0,
        "prompt_rows": 0,
        "frozen": False,
    }
    return values | given


STARTING = {"audible": False, "slack_s": 0.0, "arrival_s": NOW_S - 0.01}


def columns(*rows: dict[str, object]) -> Columns:
    kinds = {"audible": np.bool_, "needs_prefill": np.bool_, "can_frame": np.bool_}
    kinds |= {"frozen": np.bool_, "kind": np.int64, "undecoded": np.int64}
    kinds |= {"flying": np.int64, "prompt_rows": np.int64}
    arrays = {
        name: np.array([r[name] for r in rows], kinds.get(name, np.float64)) for name in row()
    }
    return Columns(**arrays)


COSTS = StepCosts(prompt_row_s=0.002)
"""A slow CPU: 12 ms and 5 ms a row, 10 ms for each frame decoded, 2 ms a prompt row."""


def plan(*rows: dict[str, object], profile: Profile = PROFILE, costs: StepCosts = COSTS) -> Plan:
    return schedule(columns(*rows), NOW_S, profile, 0.05, costs)


def test_nothing_runs_while_everyone_is_above_low() -> None:
    result = plan(row(), row(slack_s=0.9))
    assert result.idle
    assert result.wake_s == pytest.approx(NOW_S + 0.6 - PROFILE.low_s)


def test_first_audio_runs_at_once_and_takes_a_free_rider_along() -> None:
    result = plan(row(slack_s=0.9), row(slack_s=0.7), row(**STARTING))
    assert result.frame == (2, 1), "the starter first, then the neediest of those below target"


def test_beyond_target_nobody_rides_along() -> None:
    assert plan(row(slack_s=1.2), row(**STARTING)).frame == (1,)


def test_below_low_all_below_target_fill_the_batch() -> None:
    result = plan(row(slack_s=0.2), row(slack_s=0.5), row(slack_s=0.8), row(slack_s=1.5))
    assert result.frame == (0, 1, 2)


def test_starter_past_its_budget_no_longer_outranks_a_stream_about_to_run_dry() -> None:
    old = STARTING | {"arrival_s": NOW_S - 2.0}
    dry = row(slack_s=0.05)
    one = replace(PROFILE, max_rows=1, flat_rows=1)
    assert plan(row(**old), dry, profile=one).frame == (1,)
    assert plan(row(**STARTING), dry, profile=one).frame == (0,)


def test_oldest_starter_first_and_urgent_by_deadline() -> None:
    young = STARTING | {"arrival_s": NOW_S - 0.01}
    elder = STARTING | {"arrival_s": NOW_S - 0.2}
    result = plan(row(**young), row(**elder), row(slack_s=0.12), row(slack_s=0.03))
    assert result.frame == (1, 0, 3, 2)


def test_text_wait_is_never_stepped() -> None:
    assert plan(row(can_frame=False, slack_s=0.0)).frame == ()


def test_offline_runs_on_an_idle_device_and_only_fills_spare_rows_beside_live() -> None:
    offline = row(kind=OFFLINE, audible=False, slack_s=0.0)
    assert plan(offline, offline).frame == (0, 1)
    assert plan(offline, row(slack_s=0.1), row(slack_s=0.1)).frame == (1, 2)
    assert plan(offline, row(slack_s=0.1)).frame == (1, 0)


def test_speculative_before_offline_after_live() -> None:
    waiting = row(kind=SPECULATIVE, audible=False, slack_s=0.0)
    offline = row(kind=OFFLINE, audible=False, slack_s=0.0)
    assert plan(offline, waiting).frame == (1, 0)
    assert plan(waiting, row(slack_s=0.1), row(slack_s=0.2)).frame == (1, 2)


def test_prompt_and_first_frame_share_a_step() -> None:
    joiner = row(**STARTING, needs_prefill=True)
    result = plan(joiner, row(slack_s=0.9))
    assert result.prefill == (0,) and result.frame == (0, 1)


def test_long_prompt_waits_until_nobody_is_made_late_by_it() -> None:
    joiner = row(**STARTING, needs_prefill=True, prompt_rows=300)
    late = plan(row(slack_s=0.5), joiner)
    assert late.prefill == () and late.frame == (0,), "others build the slack it takes"
    safe = plan(row(slack_s=0.7), joiner)
    assert safe.prefill == (1,) and safe.frame[0] == 1
    assert plan(row(frozen=True), joiner).prefill == (1,)


def test_long_prompt_of_the_next_segment_does_not_wait_for_its_own_listener() -> None:
    speaking = row(slack_s=0.2, needs_prefill=True, prompt_rows=300)
    assert plan(speaking).prefill == (0,)
    assert plan(speaking, row(slack_s=0.3)).prefill == (), "the other listener would run dry"


def test_stored_prompts_never_wait() -> None:
    joiners = [row(**STARTING, needs_prefill=True, prompt_rows=n) for n in (0, 4_000, 0)]
    assert plan(row(slack_s=0.1), *joiners).prefill == (1, 3)


def test_prompt_longer_than_any_slack_runs_once_others_hold_their_target() -> None:
    joiner = row(**STARTING, needs_prefill=True, prompt_rows=10_000)
    assert plan(row(slack_s=0.95), joiner).prefill == (1,)


def test_frames_in_flight_count_as_ahead() -> None:
    assert plan(row(slack_s=0.3, flying=3)).frame == ()
    assert plan(row(slack_s=0.3)).frame == (0,)
    assert plan(row(**STARTING, flying=13)).frame == ()


def test_what_a_receiver_hides_is_spent_only_on_the_first_audio_of_others() -> None:
    one = replace(PROFILE, max_rows=1, flat_rows=1)
    old = STARTING | {"arrival_s": NOW_S - 2.0}
    assert plan(row(slack_s=0.15), row(**old), profile=one).frame == (0,)
    assert plan(row(slack_s=0.15, bridge_s=0.06), row(**old), profile=one).frame == (1,)
    # A first frame lands in 30 ms; a decode of two rows takes 20 ms.
    coming = STARTING | {"flying": 1, "lands_s": 0.03}
    short = {"slack_s": 0.04, "undecoded": 1, "can_frame": False}
    assert plan(row(**short), row(**coming)).codec[0].row == 0
    assert plan(row(**short, bridge_s=0.06), row(**coming)).codec == (), "both go together then"
    assert plan(row(**short, bridge_s=0.06), row(**STARTING)).codec[0].row == 0, "it gains nothing"
    assert plan(row(**short, bridge_s=0.06)).codec[0].row == 0, "nobody waits: nothing is spent"


def decoded(result: Plan) -> list[tuple[int, int]]:
    return [(chunk.row, chunk.num_frames) for chunk in result.codec]


def test_nobody_outside_of_a_codec_launch_runs_dry_while_it_is_in_flight() -> None:
    """A frame takes 10 ms to decode; row 0 has its first chunk only, its next frame in flight."""
    full = {"slack_s": 0.55, "undecoded": 6}
    roomy = replace(PROFILE, max_rows=8)
    young = row(slack_s=0.13, flying=1)
    assert decoded(plan(young, *[row(**full)] * 3, profile=roomy)) == [(1, 6), (2, 6)]
    late = row(slack_s=0.08, flying=1)
    assert decoded(plan(late, *[row(**full)] * 3, profile=roomy)) == [(1, 6)]
    assert decoded(plan(row(slack_s=0.06, flying=1), row(**full), profile=roomy)) == []
    for harmless in ({"frozen": True}, {"can_frame": False, "flying": 0}, {"slack_s": 0.005}):
        listener = row(**({"slack_s": 0.06, "flying": 1} | harmless))
        assert decoded(plan(listener, row(**full), profile=roomy)) == [(1, 6)], harmless


def test_a_codec_launch_counts_all_who_need_the_next_one() -> None:
    roomy = replace(PROFILE, max_rows=8)
    full = row(slack_s=0.55, undecoded=6)
    one, three = [row(slack_s=0.08, flying=1)], [row(slack_s=0.08, flying=1)] * 3
    assert decoded(plan(full, *one, profile=roomy)) == [(0, 6)]
    assert decoded(plan(full, *three, profile=roomy)) == [], "60 ms, then 10 ms for each of three"


def test_first_audio_waits_where_a_listener_would_run_dry_and_its_receiver_cannot_hide_it() -> None:
    starters = [row(**STARTING, undecoded=1)] * 3
    tight = row(slack_s=0.035, flying=1)
    assert [c.row for c in plan(tight, *starters).codec] == [1, 2]
    hidden = row(slack_s=0.035, flying=1, bridge_s=0.06)
    assert [c.row for c in plan(hidden, *starters).codec] == [1, 2, 3]


def test_those_who_are_needed_go_in_turns_when_one_launch_would_be_too_long() -> None:
    short = [row(slack_s=0.025 + 0.01 * i, undecoded=1) for i in range(4)]
    assert [c.row for c in plan(*short).codec] == [0, 1], "20 ms, then the others"
    dear = StepCosts(codec_fixed_s=0.04, codec_frame_s=0.01)
    assert len(plan(*short, costs=dear).codec) == 4, "another launch would cost more than they do"


def test_what_codec_batches_took_beyond_their_prediction_counts() -> None:
    costs = StepCosts()
    full, young = row(slack_s=0.55, undecoded=6), row(slack_s=0.08, flying=1)
    assert decoded(plan(young, full, costs=costs)) == [(1, 6)]
    for _ in range(3):
        costs.saw_codec(6, 0.060)
    costs.saw_codec(6, 0.090)
    assert costs.codec_spread == pytest.approx(1.5)
    assert decoded(plan(young, full, costs=costs)) == []
    for _ in range(240):
        costs.saw_codec(6, costs.codec_s(6))
    assert costs.codec_spread < 1.03, "it fades"


def test_first_chunk_is_one_frame() -> None:
    result = plan(row(**STARTING, undecoded=3))
    assert [(c.row, c.num_frames) for c in result.codec] == [(0, 1)]


@pytest.mark.parametrize(
    ("slack_s", "undecoded", "frames"),
    [(0.05, 5, 1), (0.15, 5, 1), (0.30, 5, 3), (0.50, 6, 6), (0.90, 5, None), (0.9, 12, 6)],
)
def test_chunk_is_as_long_as_the_slack_held(
    slack_s: float, undecoded: int, frames: int | None
) -> None:
    result = plan(row(slack_s=slack_s, undecoded=undecoded, can_frame=False))
    assert [c.num_frames for c in result.codec] == ([] if frames is None else [frames])


def test_new_arrival_shrinks_other_chunks_to_what_lifts_them_to_the_guard() -> None:
    steady = row(slack_s=0.14, undecoded=6)
    assert plan(steady).codec[0].num_frames == 1
    needy = row(slack_s=0.30, undecoded=6)
    assert plan(needy).codec[0].num_frames == 3
    assert plan(needy, row(**STARTING)).codec == ()


def test_frozen_stream_does_not_wake_the_engine() -> None:
    assert plan(row(frozen=True, slack_s=1.1)).wake_s == np.inf


@given(
    st.lists(
        st.tuples(st.floats(0.0, 2.0), st.integers(0, 12), st.booleans(), st.booleans()),
        min_size=1,
        max_size=24,
    )
)
def test_plan_bounds_hold(rows: list[tuple[float, int, bool, bool]]) -> None:
    """Never more rows than allowed, never a chunk longer than held slack, never beyond target."""
    cols = columns(
        *(row(slack_s=s if a else 0.0, undecoded=u, audible=a, can_frame=f) for s, u, a, f in rows)
    )
    result = schedule(cols, NOW_S, PROFILE, 0.05, COSTS)
    assert len(result.frame) <= PROFILE.max_rows and len(result.codec) <= PROFILE.max_rows
    assert len(set(result.frame)) == len(result.frame)
    for i in result.frame:
        assert cols.can_frame[i] and cols.ahead_s[i] < PROFILE.target_s
    for chunk in result.codec:
        assert 1 <= chunk.num_frames <= cols.undecoded[chunk.row]
        assert chunk.num_frames == 1 or chunk.num_frames * FRAME_S <= cols.slack_s[chunk.row]
    if result.idle:
        assert result.wake_s > NOW_S


class Stream:
    """A stream in the little simulation: plays from its first published frame on."""

    def __init__(self, arrival_s: float, frames: int) -> None:
        self.arrival_s, self.left = arrival_s, frames
        self.undecoded = self.published = 0
        self.dry_s = 0.0
        self.first_s: float | None = None
        self.late_s = 0.0

    def publish(self, frames: int, now_s: float) -> None:
        if self.first_s is None:
            self.first_s = now_s
        elif now_s > self.dry_s:
            self.late_s += now_s - self.dry_s
        self.dry_s = max(self.dry_s, now_s) + frames * FRAME_S
        self.undecoded -= frames


def simulate(arrivals: list[tuple[float, int]], profile: Profile) -> tuple[list[Stream], float]:
    """Run schedule() against fixed step costs; return the streams and the most audio held."""
    streams = [Stream(s, f) for s, f in sorted(arrivals)]
    now_s, held_s = 0.0, 0.0
    for _ in range(20_000):
        live = [s for s in streams if s.arrival_s <= now_s and (s.left or s.undecoded)]
        future = [s.arrival_s for s in streams if s.arrival_s > now_s]
        if not live:
            if not future:
                return streams, held_s
            now_s = min(future)
            continue
        cols = columns(
            *(
                row(
                    arrival_s=s.arrival_s,
                    audible=s.first_s is not None,
                    can_frame=s.left > 0,
                    undecoded=s.undecoded,
                    slack_s=0.0 if s.first_s is None else s.dry_s - now_s,
                )
                for s in live
            )
        )
        result = schedule(cols, now_s, profile, 0.03, StepCosts(0.010, 0.002, 0.002))
        if result.idle:
            now_s = min([result.wake_s, *future])
            continue
        for chunk in result.codec:
            now_s += 0.002 * chunk.num_frames
        for chunk in result.codec:
            live[chunk.row].publish(chunk.num_frames, now_s)
        if result.frame:
            now_s += 0.010 + 0.002 * len(result.frame)
            for i in result.frame:
                live[i].left -= 1
                live[i].undecoded += 1
        held_s = max([held_s, *(s.dry_s - now_s for s in live if s.first_s is not None)])
    raise AssertionError("the simulation did not end: somebody starves")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.0, 6.0), st.integers(5, 60)), min_size=1, max_size=9),
)
def test_no_stream_starves_or_stutters_below_full_load(arrivals: list[tuple[float, int]]) -> None:
    profile = Profile(max_rows=8, flat_rows=4)
    streams, held_s = simulate(arrivals, profile)
    assert all(s.first_s is not None for s in streams)
    assert sum(s.late_s for s in streams) == 0.0
    assert held_s <= profile.target_s + 2 * FRAME_S


def test_admission_accepts_until_the_busy_limit_and_then_says_when() -> None:
    costs, profile = StepCosts(0.010, 0.002, 0.004), Profile(max_rows=8, max_streams=64)
    admitted = 0
    while retry_s(admitted, 64 - admitted, costs, profile) is None:
        admitted += 1
    assert busy_share(admitted, costs, profile) <= profile.busy_limit
    assert busy_share(admitted + 1, costs, profile) > profile.busy_limit
    assert (retry_s(admitted, 1, costs, profile) or 0) > 0
    assert retry_s(0, 0, costs, profile) is not None


def test_first_stream_is_accepted_however_dear_the_last_steps_were() -> None:
    dear, profile = StepCosts(1.0, 1.0, 1.0), Profile()
    assert retry_s(0, 1, dear, profile) is None
    assert retry_s(1, 1, dear, profile) is not None


def test_costs_learn_from_steps() -> None:
    costs = StepCosts()
    for _ in range(400):
        costs.saw_frame(1, 0.020)
        costs.saw_frame(4, 0.032)
        costs.saw_codec(4, 0.016)
    assert costs.frame_s(1) == pytest.approx(0.020, abs=0.002)
    assert costs.frame_s(4) == pytest.approx(0.032, abs=0.002)
    assert costs.codec_frame_s == pytest.approx(0.004, abs=1e-4)


def test_of_many_the_emptiest_go_first_and_equal_ones_in_order_of_arrival() -> None:
    slacks_s = [0.30, 0.20, 0.25, 0.20, 0.30, 0.20, 0.25, 0.20, 0.20]
    result = plan(*(row(slack_s=slack_s, undecoded=2) for slack_s in slacks_s))
    assert [chunk.row for chunk in result.codec] == [1, 3, 5, 7]
    result = plan(*(row(slack_s=slack_s) for slack_s in slacks_s))
    assert result.frame == (1, 3, 5, 7)
    wide = replace(PROFILE, max_rows=7)
    result = plan(*(row(slack_s=slack_s) for slack_s in slacks_s), profile=wide)
    assert result.frame == (1, 3, 5, 7, 8, 2, 6)

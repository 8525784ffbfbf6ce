"""The real engine in virtual time: determinism, hold-back, fairness, admission, speculation."""

from dataclasses import replace

import numpy as np
import pytest

from playhead.engine.admission import StepCosts
from playhead.engine.profile import Profile, load_profile
from playhead.engine.replay_runner import ReplayRunner
from playhead.engine.replay_times import load_times
from playhead.engine.scheduler import LIVE, SPECULATIVE, Columns, Plan, Policy, schedule
from playhead.engine.units import FRAME_S
from playhead.worker.simulate.load import Call, Load, calls, text_of
from playhead.worker.simulate.policies import POLICIES
from playhead.worker.simulate.runs import percentile, run_calls, run_fleet, run_load
from playhead.worker.simulate.world import Outcome, Setup, World

GPU = Setup(load_times("h200"), load_profile("balanced"))
CPU = Setup(load_times("cpu_embedded"), load_profile("cpu"))
LONGEST_CHUNK_S = GPU.profile.chunk_frames[-1] * FRAME_S


def call(number: int, at_s: float, num_frames: int = 60, speculative: bool = False) -> Call:
    num_rows = max(round(num_frames / 3.6), 1)
    return Call(
        number, at_s, ((0.0, text_of(num_rows)),), num_rows, num_frames, speculative=speculative
    )


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures() -> None:
    load = Load(
        8.0, 4.0, 1.0, seed=3, lengths="heavy", paced=0.5, interrupted=0.3, remote=0.5,
        network_gaps=0.5, silent=(0.5, 0.5),
    )  # fmt: skip
    assert run_load(GPU, load) == run_load(GPU, load)
    assert run_load(GPU, load) != run_load(GPU, replace(load, seed=4))


@pytest.mark.parametrize("arrivals", ["poisson", "bursts", "diurnal"])
def test_arrivals_keep_their_mean_rate(arrivals: str) -> None:
    load = Load(40.0, 400.0, 0.0, arrivals=arrivals)  # type: ignore[arg-type]
    found = calls(load)
    assert len(found) / 400.0 == pytest.approx(40.0, rel=0.1)
    assert calls(load) == found
    shortest = np.bincount([int(c.at_s) for c in found], minlength=400)
    spread = shortest.var() / shortest.mean()
    assert spread < 1.4 if arrivals == "poisson" else spread > 1.6


@pytest.mark.slow
def test_a_fleet_is_the_same_for_any_number_of_processes() -> None:
    load = Load(5.0, 4.0, 0.0)
    one = run_fleet(GPU, load, num_gpus=4, jobs=1, cell_gpus=2)
    two = run_fleet(GPU, load, num_gpus=4, jobs=2, cell_gpus=2)
    assert one == two
    assert sum(each.calls for each in one) > 20
    assert max(each.calls for each in one) <= 2.5 * min(each.calls for each in one)


@pytest.mark.slow
def test_a_fleet_counts_the_gaps_of_calls_that_outlast_its_window() -> None:
    load = Load(4.0, 4.0, 0.0, lengths="heavy")
    late = replace(GPU, policy="static_chunks")
    (cell,) = run_fleet(late, load, num_gpus=1, jobs=1)
    assert cell.running > 4 and cell.failed == 0
    assert cell.underruns > 0.7 * cell.calls, "gaps of those that still run are among them"


@pytest.mark.slow
def test_hold_back_bounds_what_an_interruption_wastes() -> None:
    load = Load(20.0, 10.0, 3.0, interrupted=1.0)
    ours, greedy = run_load(GPU, load), run_load(replace(GPU, policy="greedy"), load)
    bound_s = GPU.profile.target_s + LONGEST_CHUNK_S
    assert len(ours.unheard_s) > 100
    assert percentile(ours.unheard_s, 0.99) <= bound_s
    assert percentile(ours.ahead_s, 0.99) <= GPU.profile.target_s + FRAME_S
    assert percentile(greedy.unheard_s, 0.99) > 2 * bound_s


@pytest.mark.slow
def test_hold_back_halves_the_busy_share_and_first_audio_is_no_later() -> None:
    load = Load(20.0, 12.0, 4.0)
    ours, greedy = run_load(GPU, load), run_load(replace(GPU, policy="greedy"), load)
    assert (ours.underruns, ours.refused) == (0, 0)
    assert ours.busy_share <= 0.55 * greedy.busy_share
    assert ours.first_audio(0.95) <= greedy.first_audio(0.95)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["fast text", "long text"])
def test_one_stream_changes_nobody_elses_first_audio(change: str) -> None:
    others = [each for each in calls(Load(20.0, 10.0, 3.0)) if each.number != 20]
    odd = call(20, 1.5, num_frames=200 if change == "fast text" else 7500)
    slow = [(i / 8, f"{word} ") for i, word in enumerate(odd.pieces[0][1].split())]
    odd = replace(odd, pieces=tuple(slow), measured=False)
    if change == "fast text":
        before = odd
        after = replace(odd, pieces=tuple((at_s / 10, text) for at_s, text in slow))
    else:
        before = replace(call(20, 1.5), measured=False)
        after = replace(odd, pieces=((0.0, text_of(odd.num_rows)),))
    figures = []
    for one in (before, after):
        world = World(GPU)
        for each in (*others, one):
            world.offer(each)
        world.run(14.0)
        world.note()  # the one with much text goes on
        first_s = [each.first_audio_s or 9.9 for each in world.outcomes if each.call.measured]
        assert not any(each.gaps_s for each in world.outcomes)
        figures.append(percentile(first_s, 0.95))
    assert figures[1] <= 1.05 * figures[0]


@pytest.mark.slow
def test_overload_refuses_at_once_and_the_admitted_hear_no_gap() -> None:
    loads: list[tuple[float, int]] = []
    refused_at: list[int] = []

    def look(world: World) -> None:
        if world.engine.metrics.refused and not refused_at:
            refused_at.append(len(loads))
        loads.append((world.engine.load(), world.engine.metrics.live))

    world = World(CPU, look)
    world.offer(replace(call(0, 0.0, 400), measured=False))
    for number in range(1, 200):
        world.offer(call(number, 3.0 + number * 0.15, 60))
    world.run(33.0)
    world.finish()
    ran = [each for each in world.outcomes if not each.refused]
    refused = [each for each in world.outcomes if each.refused]
    assert len(refused) > len(ran) > 20
    assert not any(each.gaps_s for each in ran)
    assert {each.done for each in ran} == {"stop"}
    assert all(each.first_audio_s is not None for each in ran)
    assert all(0 < (each.retry_s or 0) <= 10 for each in refused)
    assert max(each.refused_after_s for each in refused) < 0.3  # the step in progress
    first = refused_at[0]
    assert loads[first - 1][0] > 0.75
    before = [load for load, live in loads[:first] if live and live <= loads[first][1] // 2]
    assert np.mean(before) < 0.75 * loads[first - 1][0]


def test_offers_at_one_instant_never_admit_more_than_real_time_allows() -> None:
    world = World(CPU)
    world.offer(call(0, 0.0, 60))
    world.run(4.0)
    for number in range(1, 41):
        world.offer(call(number, 4.0, 100))
    world.run(20.0)
    ran = [each for each in world.outcomes[1:] if not each.refused]
    assert 3 <= len(ran) <= 10
    assert not any(each.gaps_s for each in ran)


@pytest.mark.slow
def test_speculative_requests_take_spare_rows_and_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    together: list[tuple[int, int]] = []
    """Of steps that a live stream needs: its live and its speculative rows."""

    def watched(runner: ReplayRunner) -> Policy:
        def policy(
            columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
        ) -> Plan:
            plan = schedule(columns, now_s, profile, margin_s, costs)
            rows = list(plan.frame)
            live = columns.kind[rows] == LIVE
            needed = live & (~columns.audible[rows] | (columns.ahead_s[rows] < profile.low_s))
            guesses = int((columns.kind[rows] == SPECULATIVE).sum())
            together.append((int(live.sum()) if needed.any() else 0, guesses))
            return plan

        return policy

    monkeypatch.setitem(POLICIES, "watched", watched)
    setup = replace(CPU, policy="watched", profile=replace(CPU.profile, max_streams=6))
    sure = [call(number, 0.5 + 0.1 * number, 100) for number in range(3)]
    sure += [call(number, 0.5 * number, 60) for number in range(6, 8)]
    guesses = [call(number, 1.5 + 0.1 * number, 100, speculative=True) for number in range(3, 6)]
    late = call(8, 4.0, 60, speculative=True)

    def run(*wanted: Call) -> dict[int, Outcome]:
        world = World(setup)
        told = {each.number: world.offer(each) for each in wanted}
        world.run(14.0)
        return told

    told = run(*sure, *guesses, late)
    num_guesses = sum(guess for _, guess in together)
    shared = list(together)
    alone = run(*sure)
    flat, most_frames = setup.profile.flat_rows, setup.profile.target_s / FRAME_S + 1
    assert 0 < num_guesses <= len(guesses) * most_frames, "no more than may be made ahead"
    assert all(live + guess <= flat for live, guess in shared if live and guess)
    # The newest gives way to each who is sure and finds no slot; a late guess finds none.
    assert [told[number].done for number in (3, 4, 5, 8)] == ["", "failed", "failed", "refused"]
    frame_s = setup.times.frame_s(flat) - setup.times.frame_s(1)
    for number, wanted in alone.items():
        assert told[number].done == wanted.done == "stop" and not told[number].gaps_s
        assert (told[number].first_audio_s or 9) <= (wanted.first_audio_s or 0) + 2 * frame_s


def newcomers_first(runner: ReplayRunner) -> Policy:
    """Step nobody else while there is one who came within the last second."""

    def policy(
        columns: Columns, now_s: float, profile: Profile, margin_s: float, costs: StepCosts
    ) -> Plan:
        new = now_s - columns.arrival_s < 1.0
        ready = columns.can_frame & new if new.any() else columns.can_frame
        return schedule(replace(columns, can_frame=ready), now_s, profile, margin_s, costs)

    return policy


@pytest.mark.slow
def test_nobody_starves_under_a_flood_of_new_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three speak for twelve seconds; from the second one on 25 a second want to say a word."""
    monkeypatch.setitem(POLICIES, "newcomers_first", newcomers_first)

    def flooded(policy: str) -> tuple[list[Outcome], list[Outcome]]:
        world = World(replace(CPU, policy=policy))
        speaking = [world.offer(call(number, 0.3 * number, 150)) for number in range(3)]
        world.run(2.0)
        flood = [world.offer(call(number, 2.0 + number * 0.04, 10)) for number in range(3, 250)]
        world.run(14.0)
        world.note()  # who starves has not ended
        return speaking, [each for each in flood if not each.refused]

    speaking, let_in = flooded("ours")
    assert 30 < len(let_in) < 200, "a flood is more than fits"
    assert [each.done for each in (*speaking, *let_in)] == ["stop"] * (3 + len(let_in))
    assert not any(each.gaps_s for each in (*speaking, *let_in))
    first_s = [each.first_audio_s or 9.9 for each in let_in]
    assert max(first_s) < CPU.profile.first_audio_budget_s + 0.2, "nor does one of the flood"
    starved, _ = flooded("newcomers_first")
    assert all(each.gaps_s for each in starved), "this flood can starve them"


def test_text_that_stalls_is_no_underrun() -> None:
    pieces = tuple((0.4 * i + (2.0 if i > 6 else 0.0), f" {w}") for i, w in
                   enumerate(text_of(12).split()))  # fmt: skip
    world = World(GPU)
    told = world.offer(replace(call(0, 0.0, 43), pieces=pieces))
    world.finish()
    assert told.done == "stop"
    assert not told.gaps_s


@pytest.mark.slow
def test_a_policy_is_named_in_the_setup_and_changes_what_happens() -> None:
    load = Load(10.0, 4.0, 1.0)
    wanted = calls(load)
    done = {
        name: run_calls(replace(GPU, policy=name), wanted, load.warm_up_s, load.duration_s)
        for name in POLICIES
    }
    assert all(each.calls == done["ours"].calls for each in done.values())
    assert done["static_chunks"].underruns > 0 == done["ours"].underruns
    assert done["greedy"].busy_share > done["ours"].busy_share
    assert done["deadline_aware"].busy_share > done["ours"].busy_share

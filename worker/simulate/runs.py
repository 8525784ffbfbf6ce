"""Runs of the simulator: one engine under one load, or many behind a router; figures of each."""

import gc
import math
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context

from playhead.worker.simulate.load import Call, Load, calls
from playhead.worker.simulate.world import Outcome, Setup, World

CELL_GPUS = 50
"""A router's engines; a larger fleet is several of them, each with its share of the calls."""
REPORT_S = 0.5
"""Engines report their load to the router this often."""
FINISH_S = 120.0


@dataclass(frozen=True, slots=True)
class Tally:
    """What came of the measured calls of one run."""

    calls: int = 0
    refused: int = 0
    failed: int = 0
    running: int = 0
    """Calls that had not ended when the run did."""
    underruns: int = 0
    """Calls with at least one gap that the engine made."""
    gap_s: float = 0.0
    stretched_s: float = 0.0
    network_gaps: int = 0
    busy_share: float = 0.0
    most_live: int = 0
    first_audio_ms: tuple[float, ...] = field(default=(), repr=False)
    unheard_s: tuple[float, ...] = field(default=(), repr=False)
    ahead_s: tuple[float, ...] = field(default=(), repr=False)

    def first_audio(self, share: float) -> float:
        """Return a nearest-rank percentile of the first audio in ms."""
        return percentile(self.first_audio_ms, share)


def percentile(values: Sequence[float], share: float) -> float:
    """Return a nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0


def tally(outcomes: Sequence[Outcome], busy_share: float, most_live: int) -> Tally:
    """Sum up the measured calls."""
    measured = [each for each in outcomes if each.call.measured]
    firsts = [each.first_audio_s for each in measured if each.first_audio_s is not None]
    return Tally(
        calls=len(measured),
        refused=sum(each.refused for each in measured),
        failed=sum(each.done == "failed" for each in measured),
        running=sum(not each.done for each in measured),
        underruns=sum(bool(each.gaps_s) for each in measured),
        gap_s=sum(sum(each.gaps_s) for each in measured),
        stretched_s=sum(each.stretched_s for each in measured),
        network_gaps=sum(each.network_gaps for each in measured),
        busy_share=busy_share,
        most_live=most_live,
        first_audio_ms=tuple(first_s * 1e3 for first_s in firsts),
        unheard_s=tuple(each.unheard_s for each in measured if each.unheard_s is not None),
        ahead_s=tuple(each.ahead_s for each in measured if each.ahead_s is not None),
    )


def merged(parts: Sequence[Tally]) -> Tally:
    """Return one tally of several engines'."""
    return Tally(
        calls=sum(p.calls for p in parts),
        refused=sum(p.refused for p in parts),
        failed=sum(p.failed for p in parts),
        running=sum(p.running for p in parts),
        underruns=sum(p.underruns for p in parts),
        gap_s=sum(p.gap_s for p in parts),
        stretched_s=sum(p.stretched_s for p in parts),
        network_gaps=sum(p.network_gaps for p in parts),
        busy_share=sum(p.busy_share for p in parts) / max(len(parts), 1),
        most_live=max((p.most_live for p in parts), default=0),
        first_audio_ms=tuple(ms for p in parts for ms in p.first_audio_ms),
        unheard_s=tuple(s for p in parts for s in p.unheard_s),
        ahead_s=tuple(s for p in parts for s in p.ahead_s),
    )


def run_load(setup: Setup, load: Load) -> Tally:
    """Run one engine under one load."""
    return run_calls(setup, calls(load), load.warm_up_s, load.duration_s)


def run_calls(setup: Setup, wanted: Sequence[Call], warm_up_s: float, until_s: float) -> Tally:
    """Run one engine under given calls, to their ends; it counts as busy or not until `until_s`."""
    world = World(setup)
    for call in wanted:
        world.offer(call)
    world.run(warm_up_s)
    before_s = world.runner.busy_s
    world.run(until_s)
    share = (world.runner.busy_s - before_s) / (until_s - warm_up_s)
    world.finish(FINISH_S)
    return tally(world.outcomes, share, world.most_live)


# -- many engines


def run_cell(setup: Setup, load: Load, num_gpus: int) -> list[Tally]:
    """Run engines behind one router, which sends each call to the least reported load.

    Between two reports it adds what it sent itself.
    """
    gc.freeze()  # a cell makes little garbage, and collections walk every live call
    worlds = [World(setup) for _ in range(num_gpus)]
    sent = [0] * num_gpus
    loads = [0.0] * num_gpus
    shares = [0.0] * num_gpus
    before_s = [0.0] * num_gpus
    report_s, warm = 0.0, load.warm_up_s == 0.0
    for call in calls(replace(load, rate_rps=load.rate_rps * num_gpus)):
        while call.at_s >= report_s:
            for i, world in enumerate(worlds):
                world.run(report_s)
                loads[i], sent[i] = world.engine.load(), 0
                live = max(world.engine.metrics.live, 1)
                shares[i] = max(loads[i] / live, 1e-3)
            if not warm and report_s >= load.warm_up_s:
                warm, before_s = True, [world.runner.busy_s for world in worlds]
            report_s += REPORT_S
        best = min(range(num_gpus), key=lambda i: (loads[i] + sent[i] * shares[i], i))
        sent[best] += 1
        worlds[best].offer(call)
    tallies = []
    for world, was_s in zip(worlds, before_s, strict=True):
        world.run(load.duration_s)
        world.note()  # the window ends amid calls: their gaps count as well
        share = (world.runner.busy_s - was_s) / (load.duration_s - load.warm_up_s)
        tallies.append(tally(world.outcomes, share, world.most_live))
    return tallies


def run_fleet(
    setup: Setup, load: Load, num_gpus: int, jobs: int, cell_gpus: int = CELL_GPUS
) -> list[Tally]:
    """Run any number of engines, in cells with a router each; the same for every `jobs`."""
    cells = [min(cell_gpus, num_gpus - at) for at in range(0, num_gpus, cell_gpus)]
    seeds = [replace(load, seed=load.seed * 100_003 + i) for i in range(len(cells))]
    if jobs == 1 or len(cells) == 1:
        done = [run_cell(setup, each, n) for each, n in zip(seeds, cells, strict=True)]
    else:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes below
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            done = list(pool.map(run_cell, [setup] * len(cells), seeds, cells))
    return [each for cell in done for each in cell]

"""Parts of `playhead simulate`: each runs some simulations and returns figures."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from playhead.engine.admission import StepCosts, retry_s
from playhead.engine.engine import Engine
from playhead.engine.errors import ConfigError
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.profile import Profile
from playhead.engine.replay_times import StepTimes, load_times
from playhead.worker.bench.plan import Load as PlannedLoad
from playhead.worker.bench.plan import plan
from playhead.worker.simulate.load import Load, calls, of_plan
from playhead.worker.simulate.policies import POLICIES
from playhead.worker.simulate.runs import Tally, merged, percentile, run_calls, run_fleet, run_load
from playhead.worker.simulate.trace import Recorder, Trace, replay
from playhead.worker.simulate.trace_file import read_trace, result_line
from playhead.worker.simulate.world import Setup, World, small_model

ROOFLINE = "h200_roofline"
COMPARED_RPS = 20.0
RATES_RPS = (10.0, 20.0, 40.0, 80.0)
OVERLOAD = 4.0
NEAR_CAPACITY = 0.9
FLEET_S = 10.0
"""Longest window of a fleet: a thousand engines have to be done within minutes."""
MEAN_S = 4.3
"""Of an utterance of the plain load."""
MEASURED_RPS = (10, 20, 80)
NUM_SEEDS = 3
"""Of a rate of `playhead bench serve`."""

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Options:
    """What `playhead simulate` is told."""

    times: StepTimes
    profile: Profile
    seed: int
    seconds: float
    rate_rps: float
    num_gpus: int
    jobs: int
    measured: Path | None = None
    trace: Path | None = None
    """A recorded file to replay instead of a run of this command."""
    say: Callable[[str], None] = print

    def setup(self, policy: str = "ours") -> Setup:
        """Return the engine of a policy."""
        return Setup(self.times, self.profile, policy)

    def load(self, rate_rps: float) -> Load:
        """Return the plain load: Poisson, complete text, first frame audible."""
        return Load(rate_rps, 8.0 + self.seconds, 8.0, self.seed)


def _tell(options: Options, name: str, rate_rps: float, done: Tally) -> None:
    options.say(
        f"  {name:15s} {rate_rps:6.1f}/s  first audio p50 {done.first_audio(0.5):6.1f} "
        f"p95 {done.first_audio(0.95):6.1f} p99 {done.first_audio(0.99):6.1f} ms  "
        f"busy {done.busy_share:4.2f}  underruns {done.underruns}/{done.calls}  "
        f"refused {done.refused}  stretched {done.stretched_s * 1e3:.0f} ms"
    )


def policies(options: Options) -> Figures:
    """Compare policies on the same calls; ours at several rates."""
    figures: Figures = {}
    underruns = 0
    for rate_rps in RATES_RPS:
        done = run_load(options.setup(), options.load(rate_rps))
        _tell(options, "ours", rate_rps, done)
        underruns += done.underruns
        figures |= _named("ours", rate_rps, done)
    for name in [each for each in POLICIES if each not in ("ours", "no_margin")]:
        done = run_load(options.setup(name), options.load(COMPARED_RPS))
        _tell(options, name, COMPARED_RPS, done)
        figures |= _named(name, COMPARED_RPS, done)
        figures[f"underruns_{name}"] = float(done.underruns)
    bound = replace(options, times=load_times(ROOFLINE))
    done = run_load(bound.setup(), options.load(COMPARED_RPS))
    _tell(options, "roofline", COMPARED_RPS, done)
    figures |= _named("roofline", COMPARED_RPS, done)
    ours, greedy = figures["busy_share_20rps_ours"], figures["busy_share_20rps_greedy"]
    figures["busy_ratio_ours_to_greedy_20rps"] = round(ours / greedy, 4)
    figures["underruns"] = float(underruns)
    return figures


def _named(name: str, rate_rps: float, done: Tally) -> Figures:
    return {
        f"p50_ms_{rate_rps:g}rps_{name}": round(done.first_audio(0.5), 3),
        f"p95_ms_{rate_rps:g}rps_{name}": round(done.first_audio(0.95), 3),
        f"busy_share_{rate_rps:g}rps_{name}": round(done.busy_share, 4),
    }


def interruptions(options: Options) -> Figures:
    """Let every listener interrupt at a random moment; count what was made and not heard."""
    figures: Figures = {}
    for name in ("ours", "greedy"):
        load = replace(options.load(COMPARED_RPS), interrupted=1.0)
        done = run_load(options.setup(name), load)
        wasted_s = percentile(done.unheard_s, 0.99)
        options.say(
            f"  {name:15s} unheard p50 {percentile(done.unheard_s, 0.5):.2f} s p99 {wasted_s:.2f} s"
            f" of {len(done.unheard_s)} interruptions"
        )
        suffix = "" if name == "ours" else f"_{name}"
        figures[f"unheard_s_p99{suffix}"] = round(wasted_s, 3)
        figures[f"ahead_s_p99{suffix}"] = round(percentile(done.ahead_s, 0.99), 3)
    return figures


def mixed(options: Options) -> Figures:
    """All at once: bursts or days, long tails, late text, drifting clocks, stuck networks."""
    figures: Figures = {}
    for arrivals in ("bursts", "diurnal"):
        load = replace(
            options.load(COMPARED_RPS), arrivals=arrivals, lengths="heavy", paced=0.6,
            interrupted=0.2, remote=0.5, network_gaps=0.2, silent=(0.2, 0.6, 0.2),
        )  # fmt: skip
        done = run_load(options.setup(), load)
        _tell(options, arrivals, COMPARED_RPS, done)
        figures[f"p95_ms_20rps_{arrivals}"] = round(done.first_audio(0.95), 3)
        figures[f"underruns_{arrivals}"] = float(done.underruns)
        figures[f"network_gaps_{arrivals}"] = float(done.network_gaps)
    return figures


def capacity_streams(times: StepTimes, profile: Profile) -> int:
    """Return how many streams admission would take if it knew the step times."""
    low, high = 1, profile.max_rows
    row_s = (times.frame_s(high) - times.frame_s(low)) / (high - low)
    costs = StepCosts(
        times.frame_s(low) - row_s, row_s, times.codec_frame_ms / 1e3, times.codec_fixed_ms / 1e3
    )
    num_live = 1
    while num_live < profile.max_streams and retry_s(num_live, 1, costs, profile) is None:
        num_live += 1
    return num_live


def overload(options: Options) -> Figures:
    """Offer four times what fits, then nine tenths of it with the receivers' margin and without."""
    seconds = min(options.seconds, 6.0)
    short = replace(options, seconds=seconds)
    guess_rps = OVERLOAD * capacity_streams(options.times, options.profile) / MEAN_S
    flood = run_load(options.setup(), short.load(guess_rps))
    admitted_rps = (flood.calls - flood.refused) / seconds
    options.say(f"  {guess_rps:.0f}/s offered, {admitted_rps:.0f}/s admitted")
    _tell(options, "flood", guess_rps, flood)
    figures: Figures = {
        "admitted_rps_overload": round(admitted_rps, 1),
        "most_live_overload": float(flood.most_live),
        "underruns_overload": float(flood.underruns),
    }
    for name, suffix in (("ours", "margin"), ("no_margin", "no_margin")):
        rate_rps = NEAR_CAPACITY * admitted_rps
        done = run_load(options.setup(name), short.load(rate_rps))
        _tell(options, suffix, rate_rps, done)
        figures[f"p95_ms_90pct_{suffix}"] = round(done.first_audio(0.95), 3)
        figures[f"stretched_ms_90pct_{suffix}"] = round(done.stretched_s * 1e3, 1)
        figures[f"underruns_90pct_{suffix}"] = float(done.underruns)
    return figures


def fleet(options: Options) -> Figures:
    """Many engines behind routers; the slowest engine beside the middle one."""
    load = Load(options.rate_rps, min(options.seconds, FLEET_S), 0.0, options.seed)
    engines = run_fleet(options.setup(), load, options.num_gpus, options.jobs)
    done = merged(engines)
    _tell(options, f"{options.num_gpus} engines", options.rate_rps, done)
    each_ms = sorted(engine.first_audio(0.95) for engine in engines)
    return {
        f"fleet_{options.num_gpus}gpus_p95_ms": round(done.first_audio(0.95), 3),
        f"fleet_{options.num_gpus}gpus_p95_ms_median_gpu": round(each_ms[len(each_ms) // 2], 3),
        f"fleet_{options.num_gpus}gpus_p95_ms_worst_gpu": round(each_ms[-1], 3),
        f"fleet_{options.num_gpus}gpus_underruns": float(done.underruns),
        f"fleet_{options.num_gpus}gpus_refused": float(done.refused),
        f"fleet_{options.num_gpus}gpus_calls": float(done.calls),
    }


def trace(options: Options) -> Figures:
    """Replay a recorded file, or record an engine under the mixed load and replay that.

    Raises Diverged where the engine decides otherwise than the recorded one.
    """
    if options.trace is not None:
        return _replayed(options, options.trace)
    told, setup = Trace(), options.setup()
    world = World(setup, recorder=Recorder(told))
    load = Load(options.rate_rps, options.seconds, 0.0, options.seed, paced=0.6, interrupted=0.2)
    for call in calls(load):
        world.offer(call)
    world.run(options.seconds)
    made = replay(told, small_model(), setup.profile)
    options.say(f"  {len(made.plans)} of {len(told.plans)} plans and their results are the same")
    return {
        "trace_plans": float(len(told.plans)),
        "trace_plans_same": float(len(made.plans)),
        "trace_results_same": float(made.results == told.results),
    }


def _replayed(options: Options, path: Path) -> Figures:
    """Replay an engine that `--record` recorded on this model and profile."""
    run = read_trace(path)
    model = EMBEDDED_VOICE if run.model is None else run.model
    made = replay(run.trace, model, run.profile, drive=Engine.run)
    published = [result_line(result) for result in made.results]
    same = published == run.published[: len(published)]
    options.say(
        f"  {path}: {len(made.plans)} of {len(run.trace.plans)} plans are the same, "
        f"{len(published)} results {'are too' if same else 'are NOT'}"
    )
    return {
        "trace_plans": float(len(run.trace.plans)),
        "trace_plans_same": float(len(made.plans)),
        "trace_results_same": float(same),
    }


def measured(options: Options) -> Figures:
    """Repeat the arrivals of a measured `playhead bench serve` and compare p95.

    The simulator has no HTTP, carrier or socket. Their time is taken from the file itself, as one
    constant: its median at its lowest rate, less the simulated one. No p95 goes into it.
    """
    if options.measured is None:
        return {}
    try:
        figures = json.loads(options.measured.read_text(encoding="utf-8"))["figures"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{options.measured}: {type(error).__name__}: {error}") from error
    needed = {rate: {_figure(rate, percent) for percent in (50, 95)} for rate in MEASURED_RPS}
    compared = [rate for rate, names in needed.items() if names <= figures.keys()]
    if not compared:
        raise ConfigError(
            f"{options.measured}: no first_pcm_p50_ms and _p95_ms of 10, 20 or 80 requests/s"
        )
    edge_ms, bare, errors = None, [], []
    for rate_rps in compared:
        real_ms = figures[_figure(rate_rps, 95)]
        done = _repeated(options, float(rate_rps))
        if edge_ms is None:  # the lowest rate, where what is not simulated adds hardly any waiting
            edge_ms = max(figures[_figure(rate_rps, 50)] - done.first_audio(0.5), 0.0)
        engine_ms = done.first_audio(0.95)
        bare.append(abs(engine_ms - real_ms) / real_ms)
        errors.append(abs(engine_ms + edge_ms - real_ms) / real_ms)
        options.say(
            f"  {rate_rps}/s: measured p95 {real_ms:.1f} ms, simulated {engine_ms + edge_ms:.1f} ms"
            f" (engine {engine_ms:.1f} and edge {edge_ms:.1f})"
        )
    assert edge_ms is not None
    return {
        "sim_vs_measured_p95_error": round(max(errors), 4),
        "sim_vs_measured_p95_error_engine_alone": round(max(bare), 4),
        "sim_edge_ms": round(edge_ms, 3),
    }


def _figure(rate_rps: int, percent: int) -> str:
    return f"first_pcm_p{percent}_ms_{rate_rps}rps"


def _repeated(options: Options, rate_rps: float) -> Tally:
    """Run the arrivals that `playhead bench serve` plans by default, all of its seeds."""
    parts = []
    for seed in range(NUM_SEEDS):
        load = PlannedLoad(rate_rps, seed)
        until_s = load.warm_up_s + load.window_s
        parts.append(run_calls(options.setup(), of_plan(plan(load)), load.warm_up_s, until_s))
    return merged(parts)


PARTS: dict[str, Callable[[Options], Figures]] = {
    "policies": policies,
    "interruptions": interruptions,
    "mixed": mixed,
    "overload": overload,
    "fleet": fleet,
    "trace": trace,
    "measured": measured,
}
"""In the order they run."""

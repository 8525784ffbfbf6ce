"""`playhead bench engine`: the engine alone, part by part, beside the physical floor.

Parts: `frame` (whole frames by rows and context), `codec` (batches of rows x frames and the line
through them), `prefix` (what joiners add), `host` (the engine's own step at 1,500 live requests),
`first` (first PCM after submit when idle), `idle` (what a GPU idles between frames of the real
loop), `eager` (plain eager torch on the same device: the naive baseline). Ends with the count of
graphs captured after ready.
"""

import argparse
import gc
import statistics
from functools import cached_property, partial
from pathlib import Path

import torch

from playhead.engine.eager_runner import eager_runner
from playhead.engine.errors import ConfigError
from playhead.engine.messages import Submit
from playhead.engine.models.loader import load_model
from playhead.engine.profile import Profile, load_profile
from playhead.engine.runner import Runner
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.engine_thread import EngineThread, sized
from playhead.worker.bench.floor import Ceilings, codec_work, fit_line, frame_work
from playhead.worker.bench.host import HostBench
from playhead.worker.bench.idle import IdleBench
from playhead.worker.bench.report import Report, add_common_arguments
from playhead.worker.bench.runner_times import RunnerTimes, measure_ceilings
from playhead.worker.interpreter import settle

PARTS = ("frame", "codec", "prefix", "host", "first", "idle", "eager")
BATCHES = {"cuda": (8, 32, 64, 256), "cpu": (1, 2, 4, 8)}
CODEC = {
    "cuda": ((1, 1), (8, 1), (32, 1), (64, 1), (8, 4), (32, 4), (64, 4), (64, 8)),
    "cpu": ((1, 1), (1, 4), (2, 4), (4, 4)),
}
JOINERS = {"cuda": (1, 8, 64), "cpu": (1, 4)}
STEPS = {"cuda": 60, "cpu": 12}
HOST_ROWS, HOST_MOST_ROWS = 64, 256
HOST_FEW, HOST_STREAMS = 400, 1500
"""Live streams: 400 take 78 steps of 64 rows a second; 64 are all in every step."""
FIRST_TRIALS = {"cuda": 100, "cpu": 15}
EAGER_ROWS = 8
FIRST_TEXT = "Your order leaves from the main station in about an hour."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `playhead bench engine`."""
    parser.description = __doc__
    add_common_arguments(parser, "1.7b")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"default {','.join(PARTS)}")
    parser.add_argument("--batches", help="rows of frames; default 8,32,64,256 or 1,2,4,8 on a CPU")
    parser.add_argument("--contexts", default="63", help="positions before the row; default 63")
    parser.add_argument("--steps", type=int, help="timed launches; default 60, 12 on a CPU")
    parser.add_argument(
        "--streams", type=int, default=HOST_STREAMS, help="of part host; default 1500"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    parts = [part.strip() for part in args.parts.split(",") if part.strip()]
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        raise ConfigError(f"part {unknown[0]!r}; allowed are {', '.join(PARTS)}")
    report = Report("engine", args)
    bench = EngineBench(args, report)
    bench.folder = checkpoint(args.shape, args.checkpoints, device=report.device)
    if {"frame", "codec", "prefix", "first"} & set(parts):
        report.part("runner", 60.0, lambda: bench.device_parts(parts))
        gc.collect()
    if "idle" in parts and report.device == "cuda":
        report.part("idle", 60.0, bench.idle)
        gc.collect()
    if "eager" in parts:
        report.part("eager", 30.0, bench.eager)
        gc.collect()
    if "host" in parts:
        report.part("host", 30.0, bench.host)
    return int(report.failed)


def integers(text: str, what: str) -> tuple[int, ...]:
    """Return the whole numbers of a list with commas; raises ConfigError."""
    try:
        values = tuple(int(each) for each in text.split(","))
    except ValueError:
        values = ()
    if not values or min(values) < 1:
        raise ConfigError(f"{what} {text!r}; give whole numbers from 1, with commas between")
    return values


class EngineBench:
    """Runs the parts on one checkpoint."""

    def __init__(self, args: argparse.Namespace, report: Report) -> None:
        """Read the sizes from the arguments. Raises ConfigError."""
        kind = report.device
        self._report, self._kind = report, kind
        self.folder = Path()
        """Of the checkpoint, written once the arguments are known to be right."""
        default = ",".join(map(str, BATCHES[kind]))
        self._batches = integers(args.batches or default, "--batches")
        self._contexts = integers(args.contexts, "--contexts")
        self._steps: int = args.steps or STEPS[kind]
        self._streams: int = args.streams
        self._dtype = torch.bfloat16 if kind == "cuda" else torch.float32

    def device_parts(self, parts: list[str]) -> None:
        """Run everything that needs the captured runner, on one engine."""
        rows = max(*self._batches, *(r for r, _ in CODEC[self._kind]), *JOINERS[self._kind])
        profile = load_profile("balanced" if self._kind == "cuda" else "cpu")
        made = EngineThread(self.folder, sized(profile, rows, rows), self._kind)
        runner = made.runner
        assert runner is not None
        at_start = captures(runner)
        times = RunnerTimes(runner, made.engine.model)
        for part, time_it in (
            ("frame", self._frames), ("codec", self._codec), ("prefix", self._prefix)
        ):  # fmt: skip
            if part in parts:
                self._report.part(part, 10.0, partial(time_it, times))
        times.odd_parameters(min(rows, 7))
        if "first" in parts:
            self._report.part("first", 10.0, lambda: self._first(made))
        self._report.tell({"captures_after_ready": captures(runner) - at_start})

    @cached_property
    def _ceilings(self) -> Ceilings:
        """Measured once a run, beside what is compared with them."""
        measured = measure_ceilings(self._kind, self._dtype)
        self._report.tell({"copy_gb_per_s": round(measured.bytes_per_s / 1e9, 1),
                           "matrix_tflop_per_s": round(measured.flop_per_s / 1e12, 2)})  # fmt: skip
        return measured

    def _frames(self, times: RunnerTimes) -> None:
        for context in self._contexts:
            for rows in self._batches:
                took_ms = times.frame_ms(rows, context, self._steps)
                work = frame_work(times.model.config, rows, context, self._dtype.itemsize)
                least_ms = work.least_ms(self._ceilings)
                suffix = f"b{rows}" if context == self._contexts[0] else f"b{rows}_ctx{context}"
                self._report.tell(
                    {f"frame_ms_{suffix}": round(took_ms, 4),
                     f"frame_floor_ms_{suffix}": round(least_ms, 4)},
                    f"{took_ms / least_ms:.1f} x the floor",
                )  # fmt: skip

    def _codec(self, times: RunnerTimes) -> None:
        points = []
        for rows, frames in CODEC[self._kind]:
            took_ms = times.codec_ms(rows, frames, self._steps)
            work = codec_work(times.model.config.codec, rows, frames, self._dtype.itemsize)
            least_ms = work.least_ms(self._ceilings)
            points.append((float(rows * frames), took_ms))
            self._report.tell(
                {f"codec_ms_{rows}x{frames}": round(took_ms, 4),
                 f"codec_floor_ms_{rows}x{frames}": round(least_ms, 4)},
                f"{took_ms / least_ms:.1f} x the floor",
            )  # fmt: skip
        line = fit_line(points)
        self._report.tell(
            {"codec_ms_fixed": round(line.fixed, 4), "codec_ms_per_frame": round(line.per_unit, 5),
             "codec_fit_worst_error": round(line.worst, 4)}
        )  # fmt: skip

    def _prefix(self, times: RunnerTimes) -> None:
        for rows in JOINERS[self._kind]:
            took_ms = times.join_ms(rows, self._steps)
            self._report.tell({f"prefix_copy_ms_b{rows}": round(took_ms, 4)})

    def _first(self, made: EngineThread) -> None:
        with made:
            waits_ms = [
                made.first_pcm_ms(Submit(f"first{i}", text=FIRST_TEXT, closed=True, seed=i))
                for i in range(FIRST_TRIALS[self._kind] + 2)
            ][2:]
        ordered = sorted(waits_ms)
        self._report.tell(
            {"first_pcm_idle_ms": round(statistics.median(waits_ms), 3),
             "first_pcm_idle_p95_ms": round(ordered[int(0.95 * (len(ordered) - 1))], 3)}
        )  # fmt: skip

    def idle(self) -> None:
        """Tell the device's idle time at 8, 32 and 64 rows, and at 256 of many streams."""
        rows, streams = max(self._batches), max(self._streams, *self._batches)
        settle()
        bench = IdleBench(self.folder, load_profile("balanced"), self._kind, rows, streams)
        with bench.thread:
            for num in self._batches:
                found = bench.run(streams if num == rows else num)
                self._report.tell(
                    {f"gpu_idle_ratio_b{num}": round(found.ratio, 5),
                     f"gpu_gap_p99_ms_b{num}": round(found.p99_gap_ms, 4),
                     f"gpu_idle_rows_b{num}": round(found.mean_rows, 1),
                     f"gpu_idle_live_b{num}": found.num_live},
                    f"{found.steps} frame batches",
                )  # fmt: skip

    def eager(self) -> None:
        """Time plain eager torch in the same process: what anybody gets without this engine."""
        model = load_model(self.folder, device=self._kind)
        rows = min(EAGER_ROWS, max(self._batches))
        profile = Profile(max_streams=rows, max_rows=rows, segment_frames=256)
        times = RunnerTimes(eager_runner(model, profile), model)
        steps = min(self._steps, 12)
        figures = {f"eager_frame_ms_b{rows}": times.frame_ms(rows, self._contexts[0], steps),
                   "eager_codec_ms_1x1": times.codec_ms(1, 1, steps)}  # fmt: skip
        self._report.tell({name: round(value, 3) for name, value in figures.items()})

    def host(self) -> None:
        """Time the engine's own step: 64 rows of few and of many streams, 256 rows of many."""
        settle()  # as in every process that serves
        profile, many = load_profile("balanced"), self._streams
        for rows, streams, suffix in (
            (HOST_ROWS, min(HOST_ROWS, many), f"_b{HOST_ROWS}_few"),
            (HOST_ROWS, min(HOST_FEW, many), ""),
            (HOST_ROWS, many, f"_b{HOST_ROWS}_many"),
            (HOST_MOST_ROWS, many, f"_b{HOST_MOST_ROWS}"),
        ):
            bench = HostBench(self.folder, profile, min(rows, streams), streams)
            took = bench.run(warm=streams // rows * 16 + 20, steps=300)
            self._report.tell(
                {f"host_ms_per_step{suffix}": round(took.median_ms, 4),
                 f"host_ms_per_step_p99{suffix}": round(took.p99_ms, 4),
                 f"host_rows{suffix}": round(took.mean_rows, 1),
                 f"host_live{suffix}": took.num_live}
            )  # fmt: skip


def captures(runner: Runner) -> int:
    """Return how many graphs a runner has captured; an eager one captures none."""
    return int(getattr(runner, "captures", 0))

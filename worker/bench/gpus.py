"""`playhead bench gpus`: one engine against an engine for each GPU of the host, under one load.

Two services, one after the other: `playhead serve`, then `playhead serve --gpus all` (on a CPU
`--engines N`). Both get the same requests at their HTTP sockets, open loop, Poisson; the highest
rate should be more than one GPU carries, so that it tells what the others add. The file is that of
`bench serve`, with the count in its name: serve-2xh200.json.
"""

import argparse
import contextlib
from dataclasses import dataclass

from playhead.engine.errors import ConfigError
from playhead.engine.units import frames_to_s
from playhead.worker.bench.checkpoint import EMBEDDED, checkpoint
from playhead.worker.bench.engine import integers
from playhead.worker.bench.loading import run_load
from playhead.worker.bench.plan import Load, plan
from playhead.worker.bench.player import MS, Account, account, figures_of
from playhead.worker.bench.report import Report, add_common_arguments
from playhead.worker.bench.server import GpuWatch, Served

RATES = "80,160"
START_S = 30.0
"""Of a service whose kernels are in the compiler's cache."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `playhead bench gpus`."""
    parser.description = __doc__
    add_common_arguments(parser, "1.7b")
    parser.add_argument("--rates", default=RATES, help=f"requests a second; default {RATES}")
    parser.add_argument("--profile", help="default: ttfa on a GPU, cpu on a CPU")
    parser.add_argument("--engines", type=int, default=2, help="on a CPU; default 2")
    parser.add_argument("--warm-up-s", type=float, default=8.0, help="not measured; default 8")
    parser.add_argument("--window-s", type=float, default=30.0, help="measured; default 30")
    parser.add_argument("--frames", type=int, default=63, help="of a request; default 63")
    parser.add_argument("--clients", type=int, default=8, help="load processes; default 8")


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a planned request was lost, failed or cut short."""
    rates = sorted(integers(args.rates, "--rates"))
    loads = [
        Load(float(rate), 0, args.warm_up_s, args.window_s, max_frames=args.frames)
        for rate in rates
    ]
    report = Report("serve", args)
    on_gpu = report.device == "cuda"
    count = report.num_gpus if on_gpu else args.engines
    if count < 2 or args.clients < 1:
        raise ConfigError(
            f"{count} {'GPUs' if on_gpu else 'engines'} and {args.clients} clients; allowed are 2 "
            "and more against one, and 1 client or more"
        )
    report.num_devices = count
    many = ("--gpus", "all") if on_gpu else ("--engines", str(count))
    bench = GpusBench(args, report)
    bench.measure(_Fleet(1, ()), loads)
    bench.measure(_Fleet(count, many), loads)
    bench.compare(count, rates[-1])
    return int(report.failed)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """A service by its engines."""

    num: int
    flags: tuple[str, ...]


class GpusBench:
    """Puts the same loads on services of one engine and of several."""

    def __init__(self, args: argparse.Namespace, report: Report) -> None:
        """Write the checkpoint, if it is missing."""
        self._args, self._report = args, report
        self._profile = args.profile or ("ttfa" if report.device == "cuda" else "cpu")
        self._model = checkpoint(args.shape, args.checkpoints, device=report.device)
        self._audio_s_per_s: dict[tuple[int, float], float] = {}

    def measure(self, fleet: _Fleet, loads: list[Load]) -> None:
        """Start a service, send each load in turn, tell its figures."""

        def part() -> None:
            with Served(self._model, self._profile, fleet.flags) as served:
                self._report.tell({f"ready_s_{fleet.num}x": round(served.ready_s, 2)})
                for load in loads:
                    self._load(fleet, load, served)

        spans_s = sum(load.warm_up_s + load.window_s + frames_to_s(load.max_frames) + 2.0
                      for load in loads)  # fmt: skip
        self._report.part(f"{fleet.num}x", START_S + spans_s, part)

    def _load(self, fleet: _Fleet, load: Load, served: Served) -> None:
        requests, suffix = plan(load), f"{fleet.num}x_{load.rate_rps:g}rps"
        with contextlib.ExitStack() as stack:
            on_gpu = self._report.device == "cuda"
            watches = [
                stack.enter_context(GpuWatch(index)) for index in range(fleet.num if on_gpu else 0)
            ]
            told = run_load(requests, "http", {"url": served.url}, self._args.clients)
        least_frames = 1 if self._args.shape == EMBEDDED else load.max_frames - 1
        counted = account(requests, told.outcomes, least_frames)
        self._check(counted, served)
        figures = figures_of([counted], suffix)
        self._audio_s_per_s[fleet.num, load.rate_rps] = figures[f"audio_s_per_s_{suffix}"]
        for index, watch in enumerate(watches):
            share = watch.figures().get("gpu_busy_share")
            figures |= {} if share is None else {f"gpu{index}_busy_share_{suffix}": round(share, 4)}
        figures[f"most_live_{suffix}"] = counted.most_live
        figures[f"load_lag_p99_ms_{suffix}"] = round(told.lag_p99_s * MS, 3)
        self._report.tell(figures)

    def _check(self, counted: Account, served: Served) -> None:
        bad = counted.lost + counted.failed + counted.short
        if bad:
            self._report.failed = True
            print(f"{bad} of {counted.planned} requests went wrong: {'; '.join(counted.errors)}")
            if not served.alive:
                print(f"the service ended:\n{served.log_end()}")

    def compare(self, count: int, rate_rps: float) -> None:
        """Tell the throughput of all against that of one, at the highest rate."""
        one, all_ = (self._audio_s_per_s.get((num, float(rate_rps))) for num in (1, count))
        if one and all_:
            self._report.tell({f"throughput_ratio_{count}x": round(all_ / one, 3)})

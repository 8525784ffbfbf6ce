"""`playhead bench serve`: what callers get under open-loop load, at their own sockets.

Parts: NRPS such as `10rps` (Poisson, all seeds), `burst-10rps` (bursts of 8 at that mean rate),
`max` (the highest rate with p95 < 50 ms and no gap), `streams` (live streams at the admission
cap), `interrupts` (listeners that hang up), `wall` (a 15 s file). Each is at most 8 minutes.
"""

import argparse
import json
import os
import re
import statistics
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from playhead.engine.errors import ConfigError
from playhead.engine.units import FRAME_S, frames_to_s
from playhead.worker.bench.chart import draw_serve
from playhead.worker.bench.checkpoint import EMBEDDED, MAX_SILENT_FRAMES, checkpoint
from playhead.worker.bench.loading import LEAD_S, run_load
from playhead.worker.bench.plan import Arrivals, Load, plan
from playhead.worker.bench.player import MS, Account, account, figures_of, nearest_rank
from playhead.worker.bench.report import Report, add_common_arguments
from playhead.worker.bench.server import GpuWatch, Served, engine_busy_s

CHARS_PER_AUDIO_S = 14.6
"""English read aloud: what the published price comparisons count with."""
USD_PER_HOUR = 4.29
P95_LIMIT_S = 0.050
STEP_UP = 1.25
FIRST_RPS = 40.0
STREAM_FRAMES = 500
"""40 s: longer than the ramp, so that streams only add up."""
WALL_FRAMES = 188
WALL_TEXT = "This is a longer text that is spoken to its end and written into one file. " * 3
WALL_TRIALS = 3
STARTUP_S = 60.0
_RATE = re.compile(r"(burst-)?(\d+(?:\.\d+)?)rps")
_OTHER = ("max", "streams", "interrupts", "wall")
DEFAULT_PARTS = "wall,1rps,10rps,20rps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `playhead bench serve`."""
    parser.description = __doc__
    add_common_arguments(parser, "1.7b")
    parser.add_argument("--parts", default=DEFAULT_PARTS, help=f"default {DEFAULT_PARTS}")
    parser.add_argument(
        "--target",
        choices=("http", "ws", "inprocess"),
        default="http",
        help="how it is asked; inprocess: an engine in the load generator; default http",
    )
    parser.add_argument(
        "--silent",
        type=int,
        default=0,
        metavar="FRAMES",
        help=f"frames of silence before speech, 0 to {MAX_SILENT_FRAMES}: the engine makes, "
        "finds and drops them; default 0",
    )
    parser.add_argument("--profile", help="default: ttfa on a GPU, cpu on a CPU")
    parser.add_argument("--seeds", type=int, default=3, help="arrival seeds a rate; default 3")
    parser.add_argument("--warm-up-s", type=float, default=8.0, help="not measured; default 8")
    parser.add_argument("--window-s", type=float, default=30.0, help="measured; default 30")
    parser.add_argument("--frames", type=int, default=63, help="of a request; default 63")
    clients = min(max((os.cpu_count() or 1) // 2, 4), 8)
    parser.add_argument(
        "--clients", type=int, default=clients, help=f"load processes; default here {clients}"
    )
    parser.add_argument(
        "--from-rps", type=float, default=FIRST_RPS, help=f"where max begins; default {FIRST_RPS:g}"
    )
    parser.add_argument(
        "--ramp-rps", type=float, default=40.0, help="arrivals of streams; default 40"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a planned request was lost, failed or cut short."""
    parts = parse_parts(args.parts)
    if args.target == "inprocess" and "wall" in parts:
        parts.remove("wall")
    report = Report("serve", args)
    usual = "ttfa" if report.device == "cuda" else "cpu"
    profile = args.profile or usual
    model = checkpoint(args.shape, args.checkpoints, args.silent, report.device)
    bench = ServeBench(args, report)
    if args.target == "inprocess":
        bench.where = {"model": str(model), "profile": profile}
        bench.run(parts)
    else:
        with Served(model, profile) as served:
            name = "ready_s" if profile == usual else f"ready_s_{Path(profile).stem}"
            report.tell({name: round(served.ready_s, 2)})
            bench.served, bench.where = served, {"url": served.url}
            bench.run(parts)
    figures = json.loads(report.path.read_text())["figures"] if report.path else {}
    if report.path:
        title = f"First audio over {report.device_name}, {args.shape}, {args.frames} frames"
        print(draw_serve(figures, title, report.path.with_suffix(".png")))
    return int(report.failed)


def parse_parts(text: str) -> list[str]:
    """Return the parts in order; raises ConfigError for one that does not exist."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        if part not in _OTHER and not _RATE.fullmatch(part):
            allowed = ", ".join(("10rps", "burst-10rps", *_OTHER))
            raise ConfigError(f"part {part!r}; allowed are {allowed} (any rate)")
    return parts


@dataclass(slots=True)
class _Usage:
    """What the server took of the machine during a load."""

    span_s: float = 0.0
    busy_s: float = 0.0
    cpu_s: float = 0.0
    load_lag_s: float = 0.0
    """Not the server's: how late the loop of the slowest load generator woke, 99th percentile."""


class ServeBench:
    """Runs the parts of one server."""

    def __init__(self, args: argparse.Namespace, report: Report) -> None:
        """Take the arguments and where figures go."""
        self._args, self._report = args, report
        self.served: Served | None = None
        """None for an engine in the load generator."""
        self.where: dict[str, Any] = {}
        target = "" if args.target == "http" else f"{args.target}_"
        self._prefix = target + (f"silent{args.silent}_" if args.silent else "")

    def run(self, parts: list[str]) -> None:
        """Run each part that fits the time left."""
        for part in parts:
            rate = _RATE.fullmatch(part)
            if rate:
                kind: Arrivals = "bursts" if rate[1] else "poisson"
                takes_s = self._args.seeds * self._takes_s()
                self._report.part(part, takes_s, partial(self._rate, float(rate[2]), kind))
            elif part == "wall":
                self._report.part(part, 10.0, self._wall)
            elif part == "streams":
                self._report.part(part, frames_to_s(STREAM_FRAMES) * 2 + 10.0, self._streams)
            elif part == "interrupts":
                self._report.part(part, self._takes_s(), self._interrupts)
            else:
                self._report.part(part, self._takes_s(), self._max)

    def _takes_s(self) -> float:
        """Estimate one load of one seed."""
        a = self._args
        startup_s = STARTUP_S if a.target == "inprocess" else 2.0
        return float(a.warm_up_s + a.window_s + frames_to_s(a.frames) + startup_s)

    def _load(self, load: Load, usage: _Usage | None = None) -> Account:
        """Send one load; a request that was lost, failed or cut short fails the run."""
        requests = plan(load)
        before = self.served.metrics() if self.served else {}
        cpu_s = self.served.cpu_s() if self.served else 0.0
        began_s = time.monotonic()
        num = 1 if self._args.target == "inprocess" else min(self._args.clients, len(requests))
        told = run_load(requests, self._args.target, self.where, max(num, 1))
        counted = account(requests, told.outcomes, self._least_frames(load.max_frames))
        if usage is not None:
            usage.load_lag_s = max(usage.load_lag_s, told.lag_p99_s)
        if usage is not None and self.served and self.served.alive:
            usage.span_s += time.monotonic() - began_s - LEAD_S
            usage.cpu_s += self.served.cpu_s() - cpu_s
            usage.busy_s += engine_busy_s(before, self.served.metrics())
        bad = counted.lost + counted.failed + counted.short
        if bad:
            self._report.failed = True
            print(f"{bad} of {counted.planned} requests went wrong: {'; '.join(counted.errors)}")
            if self.served and not self.served.alive:
                print(f"the server ended:\n{self.served.log_end()}")
        if told.lag_p99_s > 0.005:
            print(f"the load generator was late itself: its loop's p99 is {told.lag_p99_s:.3f} s")
        return counted

    def _least_frames(self, max_frames: int) -> int:
        """Frames of a whole answer: the silence and up to one more frame are trimmed."""
        if self._args.shape == EMBEDDED:
            return 1  # it ends when its text does
        return int(max_frames - self._args.silent - 1)

    def _of(self, rate_rps: float, seed: int = 0, **more: Any) -> Load:
        a = self._args
        given = {"warm_up_s": a.warm_up_s, "window_s": a.window_s, "max_frames": a.frames}
        return Load(rate_rps, seed, **{**given, **more})

    def _rate(self, rate_rps: float, arrivals: Arrivals) -> None:
        """Measure one rate over all seeds."""
        usage = _Usage()
        with GpuWatch(self._report.gpu_index) as watch:
            counted = [
                self._load(self._of(rate_rps, seed, arrivals=arrivals), usage)
                for seed in range(self._args.seeds)
            ]
        suffix = f"{rate_rps:g}rps" if arrivals == "poisson" else f"burst_{rate_rps:g}rps"
        figures = figures_of(counted, suffix)
        shares = self._shares(usage) | watch.figures()
        shares["load_lag_p99_ms"] = usage.load_lag_s * MS
        figures |= {f"{name}_{suffix}": round(value, 4) for name, value in shares.items()}
        self._tell(figures)

    def _shares(self, usage: _Usage) -> dict[str, float]:
        if not usage.span_s:
            return {}
        return {
            "busy_share": usage.busy_s / usage.span_s,
            "server_cpu_cores": usage.cpu_s / usage.span_s,
        }

    def _interrupts(self) -> None:
        load = self._of(10.0 if self._report.device == "cuda" else 1.0, interrupted=0.5)
        self._tell(figures_of([self._load(load)], "interrupts"))

    def _max(self) -> None:
        """Step the rate up until p95 or a gap says stop, then look between once or twice."""
        tried: dict[float, bool] = {}
        best: Account | None = None
        while (rate_rps := next_rate(tried, self._args.from_rps)) is not None:
            if self._report.left_s < self._takes_s():
                print("max: the time is up")
                break
            counted = self._load(self._of(rate_rps))
            p95_s = nearest_rank(counted.first_pcm_s, 0.95)
            tried[rate_rps] = counted.whole and p95_s < P95_LIMIT_S
            print(f"{rate_rps:g} RPS: p95 {p95_s * MS:.1f} ms, {counted.gapped} with gaps, "
                  f"{counted.refused} refused", flush=True)  # fmt: skip
            if tried[rate_rps] and rate_rps == max(r for r, ok in tried.items() if ok):
                best = counted
        if best is None:
            print("max: no rate tried kept p95 under 50 ms without a gap")
            return
        figures = {"max_rps_p95_50ms": max(rate for rate, ok in tried.items() if ok)}
        self._tell(figures | price(best.audio_s / best.span_s))

    def _streams(self) -> None:
        """Add 40 s streams until the server refuses; count those live at once without a gap."""
        span_s = frames_to_s(STREAM_FRAMES)
        load = Load(self._args.ramp_rps, warm_up_s=0.0, window_s=span_s, max_frames=STREAM_FRAMES)
        counted = self._load(load)
        figures = figures_of([counted], "streams")
        name = "live_streams" if counted.gapped == 0 else "live_streams_with_gaps"
        self._tell({name: counted.most_live, **figures})

    def _wall(self) -> None:
        """Ask for a 15 s file, one at a time."""
        assert self.served is not None
        body = {"input": WALL_TEXT, "response_format": "pcm", "stream": False,
                "max_new_tokens": WALL_FRAMES}  # fmt: skip
        walls_s, audio_s = [], []
        for seed in range(WALL_TRIALS):
            request = urllib.request.Request(
                f"{self.served.url}/v1/audio/speech",
                json.dumps({**body, "seed": seed}).encode(),
                {"Content-Type": "application/json"},
            )
            began_s = time.monotonic()
            with urllib.request.urlopen(request, timeout=120) as answer:
                num_bytes = len(answer.read())
            walls_s.append(time.monotonic() - began_s)
            audio_s.append(num_bytes / 48_000)
        wall_s, made_s = statistics.median(walls_s), statistics.median(audio_s)
        figures = {"wall_s_per_audio_s": wall_s / made_s}
        if made_s > 15.0 - 2 * FRAME_S:
            figures["wall_s_15s"] = wall_s
        self._tell({name: round(value, 4) for name, value in figures.items()})

    def _tell(self, figures: Mapping[str, float]) -> None:
        self._report.tell({f"{self._prefix}{name}": value for name, value in figures.items()})


def next_rate(tried: Mapping[float, bool], first: float) -> float | None:
    """Return the rate to try next, or None when the limit is known to within about 6 %.

    `tried` maps a rate to whether it was carried. Up by 1.25 from the highest that was, down by
    half while none was, then the geometric middle of the two nearest.
    """
    if not tried:
        return first
    good = [rate for rate, ok in tried.items() if ok]
    bad = [rate for rate, ok in tried.items() if not ok]
    if not bad:
        return _round(max(good) * STEP_UP)
    if not good:
        return _round(min(bad) / 2) if min(bad) > 0.1 else None
    low = max(good)
    high = min((rate for rate in bad if rate > low), default=0.0)
    if high <= low * 1.07:
        return None
    middle = _round((low * high) ** 0.5)
    return None if middle in tried else middle


def _round(rate_rps: float) -> float:
    return float(f"{rate_rps:.3g}")


def price(audio_s_per_s: float) -> dict[str, float]:
    """Return characters per second and dollars per million of them at one card's hourly price."""
    chars_per_s = audio_s_per_s * CHARS_PER_AUDIO_S
    usd = USD_PER_HOUR / 3600 / chars_per_s * 1e6
    return {"chars_per_s": round(chars_per_s, 1), "usd_per_1m_chars": round(usd, 4)}

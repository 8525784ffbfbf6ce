"""`playhead bench first-audio`: where the time to first audio goes, in four parts.

`text` (characters to text rows), `acoustic` (joining and the first frame), `codec` (that frame to
samples), `end_to_end` (the whole engine, submit to PCM). Each is asked 100 times, 50 ms apart; end
to end the requests overlap as they would, each 63 frames long.
"""

import argparse
import queue
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from playhead.engine.errors import ConfigError
from playhead.engine.messages import Done, Failed, Pcm, Refused, Submit
from playhead.engine.profile import load_profile
from playhead.engine.text.front_end import load_front_end
from playhead.worker.bench.checkpoint import checkpoint
from playhead.worker.bench.engine_thread import EngineThread
from playhead.worker.bench.player import nearest_rank
from playhead.worker.bench.report import Report, add_common_arguments
from playhead.worker.bench.runner_times import RunnerTimes

PARTS = ("text", "acoustic", "codec", "end_to_end")
REQUESTS, INTERVAL_S, FRAMES = 100, 0.05, 63
WAIT_S = 30.0
TEXT = "The evening train leaves from the main station at a quarter past nine."
SLOT, TEXT_ID = 1, 5
WARM_UTTERANCES = 3
"""Whole ones before the first measured: the engine learns what its steps cost."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of `playhead bench first-audio`."""
    parser.description = __doc__
    add_common_arguments(parser, "1.7b")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"default {','.join(PARTS)}")
    parser.add_argument("--profile", help="default: ttfa on a GPU, cpu on a CPU")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="default 100")
    parser.add_argument("--interval-ms", type=float, default=INTERVAL_S * 1e3, help="default 50")


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 when a request failed."""
    parts = [part.strip() for part in args.parts.split(",") if part.strip()]
    unknown = [part for part in parts if part not in PARTS]
    if unknown or args.requests < 2 or args.interval_ms < 0:
        raise ConfigError(
            f"parts {args.parts!r}, {args.requests} requests; allowed are {', '.join(PARTS)}, "
            "2 requests and more, an interval from 0 ms"
        )
    report = Report("first-audio", args)
    bench = FirstAudio(args, report)
    # End to end comes last: from then on the runner belongs to the engine's thread.
    for part in [part for part in PARTS if part in parts]:
        takes_s = args.requests * args.interval_ms / 1e3 + 5.0
        report.part(part, takes_s, partial(bench.measure, part))
    bench.close()
    return int(report.failed)


class FirstAudio:
    """One engine and the four ways to ask parts of it."""

    def __init__(self, args: argparse.Namespace, report: Report) -> None:
        """Load everything once."""
        self._report, self._num = report, int(args.requests)
        self._interval_s = args.interval_ms / 1e3
        folder = checkpoint(args.shape, args.checkpoints, device=report.device)
        profile = load_profile(args.profile or ("ttfa" if report.device == "cuda" else "cpu"))
        self._thread = EngineThread(folder, profile, report.device)
        assert self._thread.runner is not None
        self._runner, model = self._thread.runner, self._thread.engine.model
        self._front_end, _ = load_front_end(model.text_front_end, model.folder)
        self._times = RunnerTimes(self._runner, model)
        self._running = False

    def measure(self, part: str) -> None:
        """Measure one part and tell its figures."""
        reset_peak(self._report.device)
        if part == "end_to_end":
            waits_ms, failures = self._end_to_end()
        else:
            ask = {"text": self._text, "acoustic": self._acoustic, "codec": self._codec}[part]
            waits_ms, failures = paced(ask, self._num, self._interval_s)
        self._report.failed |= failures > 0
        figures = {f"{part}_failures": float(failures)}
        if len(waits_ms) > 1:
            figures |= {
                f"{part}_mean_ms": statistics.mean(waits_ms),
                f"{part}_p50_ms": nearest_rank(waits_ms, 0.5),
                f"{part}_p95_ms": nearest_rank(waits_ms, 0.95),
                f"{part}_sd_ms": statistics.stdev(waits_ms),
                f"{part}_peak_memory_mib": peak_mib(self._report.device),
            }
        self._report.tell({name: round(value, 4) for name, value in figures.items()})

    def close(self) -> None:
        """Stop the engine, if a part started it."""
        if self._running:
            self._thread.__exit__(None, None, None)

    def _text(self) -> float:
        began_s = time.perf_counter()
        stream = self._front_end.open()
        units = [*stream.push(TEXT), *stream.close()]
        took_s = time.perf_counter() - began_s
        assert units, "no unit of text came out"
        return took_s

    def _acoustic(self) -> float:
        began_s = time.perf_counter()
        self._times.join([SLOT])
        self._runner.launch_frame([SLOT], [TEXT_ID], [False]).result()
        took_s = time.perf_counter() - began_s
        self._times.leave([SLOT])
        return took_s

    def _codec(self) -> float:
        self._times.join([SLOT])
        made = self._runner.launch_frame([SLOT], [TEXT_ID], [False]).result()
        began_s = time.perf_counter()
        self._runner.launch_codec([SLOT], made.codes[:, None, :]).result()
        took_s = time.perf_counter() - began_s
        self._times.leave([SLOT])
        return took_s

    def _end_to_end(self) -> tuple[list[float], int]:
        """Submit on time whatever came of the earlier ones; return waits and failures."""
        if not self._running:
            self._running = True
            self._thread.__enter__()
            for i in range(WARM_UTTERANCES):
                warm = Submit(f"warm{i}", text=TEXT, closed=True, live=False, max_frames=FRAMES)
                self._thread.spoken(warm)
        sent_s: dict[str, float] = {}
        waits_ms: dict[str, float] = {}
        open_ids: set[str] = set()
        broken = 0
        begin_s = time.perf_counter()
        due_s = [begin_s + i * self._interval_s for i in range(self._num)]
        last_s = due_s[-1] + FRAMES * 0.08 + WAIT_S
        while len(sent_s) < self._num or open_ids:
            now_s = time.perf_counter()
            if now_s > last_s:
                break
            if len(sent_s) < self._num and now_s >= due_s[len(sent_s)]:
                name = f"e{len(sent_s)}"
                sent_s[name] = time.perf_counter()
                open_ids.add(name)
                self._thread.engine.post(
                    Submit(name, text=TEXT, closed=True, seed=len(sent_s), max_frames=FRAMES)
                )
                continue
            wake_s = due_s[len(sent_s)] if len(sent_s) < self._num else last_s
            try:
                at_s, result = self._thread.results.get(timeout=max(wake_s - now_s, 1e-4))
            except queue.Empty:
                continue
            name = result.request_id
            if isinstance(result, Pcm) and name in sent_s:
                waits_ms.setdefault(name, (at_s - sent_s[name]) * 1e3)
            elif isinstance(result, Refused | Failed | Done) and name in open_ids:
                open_ids.discard(name)
                bad = name not in waits_ms or isinstance(result, Failed)
                broken += bad
                if bad and broken == 1 and not isinstance(result, Done):
                    print(f"end_to_end: {result.message}")
        return list(waits_ms.values()), broken + len(open_ids)


def paced(ask: Callable[[], float], count: int, interval_s: float) -> tuple[list[float], int]:
    """Call `ask` at fixed times (at once when late); return what each took in ms, and failures.

    `ask` returns the seconds it took.
    """
    ask()  # the first of a part compiles, opens and caches
    waits_ms, failures = [], 0
    begin_s = time.perf_counter()
    for i in range(count):
        time.sleep(max(begin_s + i * interval_s - time.perf_counter(), 0.0))
        try:
            waits_ms.append(ask() * 1e3)
        except Exception as error:  # counted: one broken request must not end the measurement
            failures += 1
            print(f"failed: {type(error).__name__}: {error}")
    return waits_ms, failures


def reset_peak(device: str) -> None:
    """Begin a new peak of device memory."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_mib(device: str) -> float:
    """Return the most memory held: on the device, graphs included, or of this process so far.

    CUDA's own context and the kernels loaded into it are not part of it.
    """
    if device == "cuda":
        return torch.cuda.max_memory_reserved() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

"""First run of the captured engine on a real device: right first, then how fast.

    python -m tests.bench.gpu_spike          # a CUDA device, true 1.7B shapes, under 8 minutes
    python -m tests.bench.gpu_spike --dry    # CPU, toy shapes, Triton's interpreter

Kernel tests run in a process of their own, then: captured runner against eager fp32 models, frame
and codec graph times, and a real Python loop over 1,500 streams with the codec on a second stream.
Figures go to spike.json in the folder of --out as they come, so a cut run still tells something.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.kernels.interpreter import ON_DEVICE, use_interpreter

use_interpreter()

from playhead.engine.cuda_frame import FrameBody  # noqa: E402
from playhead.engine.cuda_runner import CudaRunner, GraphSizes  # noqa: E402
from playhead.engine.cuda_state import StateSizes  # noqa: E402
from playhead.engine.graphs import Recorder  # noqa: E402
from playhead.engine.models.config import ModelConfig  # noqa: E402
from playhead.kernels.sampler import POSITION  # noqa: E402
from tests.bench import spike_tune  # noqa: E402
from tests.bench.spike_checks import BareModel, check_models, plain_prompt, relative_error, settle  # noqa: E402
from tests.bench.true_shapes import (  # noqa: E402
    SAMPLING,
    codec_tensors,
    main_tensors,
    true_config,
    true_weights,
)

STREAMS, STEPS = 1500, 2000
ROWS = (8, 32, 64, 256)
LOOPS = {8: (8, 1), 32: (8, 4), 256: (64, 4)}
"""Rows of a frame batch to (streams, frames) of the codec batch that keeps pace with it."""
CODEC_SHAPES = ((1, 1), (8, 1), (32, 1), (64, 1), (8, 4), (32, 4), (64, 4), (64, 8))
CONTEXT = 63
TIME_LIMIT_S = 430.0
_began_s = time.monotonic()
_told: dict[str, Any] = {}
_out: list[Path] = []
"""The folder of the result file, once the command line named one."""


def tell(**figures: Any) -> None:
    """Print figures and add them to the result file."""
    _told.update(figures)
    print(f"[{time.monotonic() - _began_s:6.1f} s] {json.dumps(figures)}", flush=True)
    if _out:
        text = json.dumps(_told, indent=1) + "\n"
        (_out[0] / "spike.json").write_text(text, encoding="utf-8")


def attempt(name: str, run: Callable[[], None]) -> None:
    """Run one part; a failure is told and the next part still runs."""
    left_s = TIME_LIMIT_S - (time.monotonic() - _began_s)
    if left_s < 30:
        tell(**{f"{name}_skipped": f"{left_s:.0f} s left"})
        return
    try:
        run()
    except Exception as error:
        import traceback

        traceback.print_exc()
        tell(**{f"{name}_failed": f"{type(error).__name__}: {str(error)[-600:]}"})


def start_kernel_tests() -> "subprocess.Popen[str]":
    """Run tests/kernels apart: a device fault there must not end the measurements."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir=.",
        "--confcutdir=tests/kernels", "--import-mode=importlib", "-p", "no:cacheprovider",
        "tests/kernels",
    ]  # fmt: skip
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def end_kernel_tests(tests: "subprocess.Popen[str]") -> None:
    """Wait for the kernel tests and tell how they ended."""
    try:
        said, _ = tests.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        tests.kill()
        said, _ = tests.communicate()
    print(said[-4000:])
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    tell(kernel_tests=said.strip().splitlines()[-1] if said.strip() else "no output",
         kernel_failures=lines[:20])  # fmt: skip


def median_ms(runner: CudaRunner, replay: Callable[[], None], repeats: int, ctx: int) -> float:
    """Return the median time of a replay on the frame stream, at a context of `ctx`."""
    times = []
    with torch.inference_mode(), torch.cuda.stream(runner.frame_stream):
        for _ in range(repeats):
            runner.talker_state.wholes[:, POSITION] = ctx
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
    return round(float(np.median(times[3:])), 3)


def graph_times(runner: CudaRunner) -> None:
    """Time every captured graph alone."""
    slots = np.arange(1, STREAMS + 1)
    for rows in ROWS:
        runner.frame(slots[:rows], [5] * rows, [True] * rows)
        replay = runner.frame_replays[rows]
        figures = {f"frame_ms_b{rows}": median_ms(runner, replay, 40, CONTEXT)}
        for ctx in (255, 511):
            figures[f"frame_ms_b{rows}_ctx{ctx}"] = median_ms(runner, replay, 15, ctx)
        tell(**figures)
    counts, times = [], []
    for streams, frames in CODEC_SHAPES:
        runner.launch_codec(slots[:streams], np.ones((streams, frames, 16), np.int16)).result()
        took = median_ms(runner, runner.codec_replays[streams, frames][0], 25, CONTEXT)
        tell(**{f"codec_ms_{streams}x{frames}": took})
        counts.append(streams * frames)
        times.append(took)
    slope, fixed = np.polyfit(counts, times, 1)
    tell(codec_ms_fixed=round(float(fixed), 3), codec_ms_per_frame=round(float(slope), 4))


class Loop:
    """A Python loop like the engine's: the driest streams first, results one replay late."""

    def __init__(self, runner: CudaRunner, rows: int, codec: tuple[int, int], streams: int) -> None:
        self._runner, self._rows, self._codec = runner, rows, codec
        self._ahead_s = np.random.default_rng(0).random(streams)
        self._ids = np.random.default_rng(1).integers(0, 500, 4096)
        self.wait_s, self.gap_ms = 0.0, []

    def run(self, steps: int) -> float:
        """Run; return the wall time of one step in seconds."""
        runner, rows, (streams, frames) = self._runner, self._rows, self._codec
        codes = np.ones((streams, frames, 16), np.int16)
        frame_flight, codec_flight = None, None
        last_end = None
        began_s = time.perf_counter()
        for step in range(steps):
            chosen = np.argpartition(self._ahead_s, rows)[:rows]
            slots = chosen + 1
            ids = self._ids[(step * 7 + chosen) % 4096]
            begin = self._event()
            flight = runner.launch_frame(slots, ids, np.zeros(rows, bool))
            if begin is not None and last_end is not None and step % 4 == 0:
                self.gap_ms.append((last_end, begin))
            last_end = self._event()
            self._ahead_s[chosen] += 0.08
            if frame_flight is not None:
                waited_s = time.perf_counter()
                made = frame_flight.result()
                self.wait_s += time.perf_counter() - waited_s
                codes[:, step % frames] = made.codes[:streams]
            frame_flight = flight
            if codec_flight is None or codec_flight.ready():
                if codec_flight is not None:
                    codec_flight.result()
                codec_flight = runner.launch_codec(slots[:streams], codes)
        assert frame_flight is not None
        frame_flight.result()
        return (time.perf_counter() - began_s) / steps

    def _event(self) -> "torch.cuda.Event | None":
        if self._runner.frame_stream is None:
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record(self._runner.frame_stream)
        return event

    def median_gap_ms(self) -> float:
        """Return the median time from the end of a replay to the next launch's first work."""
        return float(np.median([a.elapsed_time(b) for a, b in self.gap_ms]))


def run_loop(
    runner: CudaRunner, rows: int, codec: tuple[int, int], steps: int, streams: int
) -> None:
    """Run the loop at one batch size and tell its figures."""
    with torch.inference_mode():
        runner.talker_state.wholes[:, POSITION] = CONTEXT if ON_DEVICE else 9
    settle()
    Loop(runner, rows, codec, streams).run(min(30, steps))
    loop = Loop(runner, rows, codec, streams)
    step_s = loop.run(steps)
    host_ms = (step_s - loop.wait_s / steps) * 1e3
    figures = {f"loop_step_ms_b{rows}": round(step_s * 1e3, 3),
               f"host_ms_per_step_b{rows}": round(host_ms, 4)}  # fmt: skip
    if loop.gap_ms:
        figures[f"gpu_gap_ms_b{rows}"] = round(loop.median_gap_ms(), 4)
    alone = _told.get(f"frame_ms_b{rows}")
    if alone:
        figures[f"overlap_cost_b{rows}"] = round(step_s * 1e3 / alone, 3)
    tell(**figures)


def joins(runner: CudaRunner, config: ModelConfig, counts: tuple[int, ...]) -> None:
    """Time joins: the first runs the prompt, later ones copy its keys and values."""
    model = bare_prompt_model(config)
    prompt = plain_prompt(model)
    for count in counts:
        slots = list(range(1, count + 1))
        for slot in slots:
            runner.open(slot, prompt, SAMPLING, slot)
        runner.wait()
        began_s = time.perf_counter()
        runner.prefill(slots)
        host_s = time.perf_counter() - began_s
        runner.wait()
        done_s = time.perf_counter() - began_s
        tell(**{f"join_{count}_host_ms": round(host_s * 1e3, 3),
                f"join_{count}_done_ms": round(done_s * 1e3, 3)})  # fmt: skip


def bare_prompt_model(config: ModelConfig) -> Any:
    """Return something build_prompt reads a config from."""
    return type("PromptModel", (), {"config": config})()


def eager_baseline(config: ModelConfig) -> None:
    """Time plain eager PyTorch in bf16 beside the graphs: the naive baseline."""
    from playhead.engine.eager_runner import EagerRunner

    main = main_tensors(config, "cuda", torch.bfloat16)
    model = BareModel(config, main, codec_tensors(config, "cuda"))
    eager = EagerRunner(model, 8, 64)
    slots = list(range(1, 9))
    for slot in slots:
        eager.open(slot, plain_prompt(model), SAMPLING, slot)
    eager.prefill(slots)
    for step in range(6):
        if step == 2:
            torch.cuda.synchronize()
            began_s = time.perf_counter()
        eager.frame(slots, [5] * 8, [False] * 8)
    torch.cuda.synchronize()
    tell(eager_frame_ms_b8=round((time.perf_counter() - began_s) / 4 * 1e3, 2))


def profile(runner: CudaRunner) -> None:
    """Tell where one replay spends its time, by kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as torch_profile

    parts = {"frame_b8": runner.frame_replays[8], "codec_8x4": runner.codec_replays[8, 4][0],
             "codec_64x4": runner.codec_replays[64, 4][0]}  # fmt: skip
    for name, replay in parts.items():
        with torch_profile(activities=[ProfilerActivity.CUDA]) as found:
            for _ in range(3):
                replay()
            torch.cuda.synchronize()
        rows = sorted(found.key_averages(), key=lambda e: -e.device_time_total)[:14]
        tell(**{f"profile_{name}": [
            [e.key[:60], e.count // 3, round(e.device_time_total / 3, 1)] for e in rows
        ]})  # fmt: skip


def planned_frames(runner: CudaRunner) -> None:
    """Tune the long products, then time whole frames that use what won."""
    plan = spike_tune.products(tell)
    tell(plan=str(plan))
    recorder = Recorder(torch.device("cuda"))
    for rows in (8, 32, 64):
        body = FrameBody(runner.weights, runner.talker_state, runner.buffers, rows, plan)
        with torch.inference_mode():
            replay = recorder.capture(body.run)
        runner.frame(np.arange(1, rows + 1), [5] * rows, [True] * rows)
        error = same_frame(runner, runner.frame_replays[rows], replay, rows)
        tell(**{f"frame_ms_planned_b{rows}": median_ms(runner, replay, 40, CONTEXT),
                f"planned_logits_error_b{rows}": error})  # fmt: skip


def same_frame(
    runner: CudaRunner, first: Callable[[], None], second: Callable[[], None], rows: int
) -> float:
    """Return the relative difference of the talker's logits of two graphs from one state."""
    state, logits = runner.talker_state, runner.buffers.logits[:rows]
    kept = [(t, t.clone()) for t in (state.carry, state.wholes, state.seen)]
    made = []
    for replay in (first, second):
        logits.fill_(float("nan"))
        settle()
        replay()
        settle()
        made.append(logits[:, : runner.weights.num_codes].clone())
        for tensor, before in kept:
            tensor.copy_(before)
    settle()
    return relative_error(made[1], made[0])


def dry() -> None:
    """Check at toy shapes on the CPU everything that does not need a device."""
    config = true_config("tiny")
    # The interpreter has no bf16 products; fp16 stands for them.
    for name, dtype in (("fp32", torch.float32), ("fp16", torch.float16)):
        told = check_models(config, "cpu", dtype, rows=1, num_frames=2)
        tell(**{f"check_{name}_{k}": v for k, v in told.items()})
    sizes = StateSizes(6, 64, 64, prefix_entries=2)
    weights, codec = true_weights("cpu", torch.float32, sizes.max_positions, config)
    runner = CudaRunner(weights, codec, sizes, GraphSizes((1,), (1,), (16,), 1))
    joins(runner, config, (1, 2))
    run_loop(runner, 1, (1, 1), 1, 6)
    tell(captures_after_ready=runner.captures - runner.captures_at_start)


def measure() -> None:
    """Run everything on the device."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    device = torch.cuda.get_device_properties(0)
    tell(device=device.name, torch=torch.__version__)
    tests = start_kernel_tests()
    small = true_config(talker_layers=3)

    def check() -> None:
        told = check_models(small, "cuda", torch.bfloat16, rows=8, num_frames=4)
        tell(**{f"check_{k}": v for k, v in told.items()})

    attempt("check", check)
    torch.cuda.empty_cache()
    end_kernel_tests(tests)
    config = true_config()
    sizes = StateSizes(STREAMS, 512, 64, prefix_entries=16)
    weights, codec = true_weights("cuda", torch.bfloat16, sizes.max_positions, config)
    tell(weights_s=round(time.monotonic() - _began_s, 1))
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    began_s = time.monotonic()
    runner = CudaRunner(weights, codec, sizes, GraphSizes(ROWS, (1, 4, 8), (16, 64), 64))
    parts = runner.memory()
    graphs = torch.cuda.memory_reserved() - before
    graphs -= sum(size for name, size in parts.items() if not name.startswith("weights"))
    tell(
        capture_s=round(time.monotonic() - began_s, 1), graph_pool_bytes=graphs,
        graphs=runner.captures, memory_mib={k: round(v / 2**20, 1) for k, v in parts.items()},
    )  # fmt: skip
    attempt("joins", lambda: joins(runner, config, (1, 64, STREAMS)))
    attempt("graph_times", lambda: graph_times(runner))
    for rows, shape in LOOPS.items():
        attempt("loop", lambda r=rows, s=shape: run_loop(runner, r, s, STEPS, STREAMS))  # type: ignore[misc]
    tell(captures_after_ready=runner.captures - runner.captures_at_start)
    attempt("profile", lambda: profile(runner))
    attempt("products", lambda: planned_frames(runner))
    attempt("small_kernels", lambda: spike_tune.small_kernels(runner, tell))
    attempt("convolutions", lambda: spike_tune.convolutions(tell))
    attempt("eager", lambda: eager_baseline(config))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="toy shapes on the CPU")
    parser.add_argument("--out", type=Path, help="folder of spike.json")
    asked = parser.parse_args()
    _out.extend([asked.out] if asked.out else [])
    if asked.dry:
        dry()
        return
    if ON_DEVICE:
        measure()
    else:
        print("no CUDA device here; --dry checks what a CPU can")


if __name__ == "__main__":
    main()

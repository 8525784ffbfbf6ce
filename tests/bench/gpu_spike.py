"""First run of the captured engine on a real device: right first, then how fast.

    python -m tests.bench.gpu_spike          # a CUDA device, true 1.7B shapes, under 8 minutes
    python -m tests.bench.gpu_spike --dry    # CPU, toy shapes, Triton's interpreter

Kernel tests run in a process of their own while others fill the compiler's cache, then: captured
runner against eager fp32 models, frame and codec graph times, a real Python loop over 1,500 streams
with the codec on a second stream; a profile by kernel and the eager baseline come last. A part that
fails is told and the next one runs. Figures go to spike.json in the folder of --out as they come.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.kernels.interpreter import ON_DEVICE, use_interpreter

use_interpreter()

from playhead.engine.cuda_runner import CudaRunner  # noqa: E402
from playhead.engine.cuda_state import StateSizes  # noqa: E402
from playhead.engine.cuda_weights import CodecWeights, FrameWeights  # noqa: E402
from playhead.engine.graphs import GraphSizes  # noqa: E402
from playhead.engine.models.config import ModelConfig  # noqa: E402
from playhead.kernels.sampler import POSITION  # noqa: E402
from tests.bench import spike_compile  # noqa: E402
from tests.bench.spike_checks import BareModel, check_models, plain_prompt  # noqa: E402
from tests.bench.spike_loop import CONTEXT, run_loop  # noqa: E402
from tests.bench.true_shapes import (  # noqa: E402
    SAMPLING,
    SPIKE_CODEC_FRAMES,
    SPIKE_CODEC_STREAMS,
    SPIKE_PROMPTS,
    SPIKE_ROWS,
    SPIKE_SIZES,
    codec_tensors,
    main_tensors,
    true_config,
    true_weights,
)

STREAMS, STEPS = SPIKE_SIZES.max_streams, 2000
LOOPS = {8: (8, 1), 32: (8, 4), 256: (64, 4)}
"""Rows of a frame batch to (streams, frames) of the codec batch that keeps pace with it."""
CODEC_SHAPES = ((1, 1), (8, 1), (32, 1), (64, 1), (8, 4), (32, 4), (64, 4), (64, 8))
TIME_LIMIT_S = 430.0
COMPILE_PROCESSES = 12
COMPILE_LIMIT_S = 150.0
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


class Compiled:
    """Counts kernels that came from the compiler's cache, and those that were not in it."""

    found, made = 0, 0

    def __call__(self, *, cache_hit: bool, **_: Any) -> None:
        """Hear of one kernel."""
        self.found, self.made = self.found + cache_hit, self.made + (not cache_hit)


def attempt(name: str, run: Callable[[], None], needs_s: float = 10.0) -> None:
    """Run one part; a failure is told and the next part still runs."""
    left_s = TIME_LIMIT_S - (time.monotonic() - _began_s)
    if left_s < needs_s:
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
        said, _ = tests.communicate(timeout=90)
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
    for rows in SPIKE_ROWS:
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
    tell(**run_loop(runner, 1, (1, 1), 1, 6, None))
    tell(captures_after_ready=runner.captures - runner.captures_at_start)


class Run:
    """The parts of a run on the device, and what they hand on."""

    runner: CudaRunner
    weights: tuple[FrameWeights, CodecWeights]

    def __init__(self) -> None:
        """Take the true shapes; nothing runs."""
        import triton

        self.config = true_config()
        self.compiled = triton.knobs.compilation.listener = Compiled()

    def draw(self) -> None:
        """Draw and fold weights of true shapes."""
        self.weights = true_weights("cuda", torch.bfloat16, SPIKE_SIZES.max_positions, self.config)
        torch.cuda.empty_cache()
        tell(weights_s=round(time.monotonic() - _began_s, 1))

    def check(self) -> None:
        """Compare a shorter talker, predictor and codec with the eager fp32 models."""
        small = true_config(talker_layers=3)
        told = check_models(small, "cuda", torch.bfloat16, rows=8, num_frames=4)
        tell(**{f"check_{k}": v for k, v in told.items()})

    def capture(self) -> None:
        """Make the runner of true shapes and 1,500 streams."""
        torch.cuda.empty_cache()
        before, began_s = torch.cuda.memory_reserved(), time.monotonic()
        frames, streams = SPIKE_CODEC_FRAMES, SPIKE_CODEC_STREAMS
        sizes = GraphSizes(SPIKE_ROWS, frames, SPIKE_PROMPTS, streams)
        self.runner = runner = CudaRunner(*self.weights, SPIKE_SIZES, sizes)
        parts = runner.memory()
        graphs = torch.cuda.memory_reserved() - before
        graphs -= sum(size for name, size in parts.items() if not name.startswith("weights"))
        tell(
            capture_s=round(time.monotonic() - began_s, 1), graph_pool_bytes=graphs,
            graphs=runner.captures, kernels_cached=self.compiled.found,
            kernels_compiled=self.compiled.made,
            memory_mib={k: round(v / 2**20, 1) for k, v in parts.items()},
            reserved_mib=round(torch.cuda.max_memory_reserved() / 2**20, 1),
        )  # fmt: skip

    def first(self) -> None:
        """Run what the engine stands on: right, then how fast."""
        compilers = spike_compile.start("runner", COMPILE_PROCESSES)
        tests = start_kernel_tests()
        attempt("weights", self.draw)
        tell(compiling=spike_compile.finish(compilers, COMPILE_LIMIT_S))
        attempt("check", self.check)
        attempt("kernel_tests", lambda: end_kernel_tests(tests))
        attempt("capture", self.capture)
        if not hasattr(self, "runner"):
            return
        runner, ready = self.runner, self.compiled.found + self.compiled.made
        # Joins first: they give every stream pages of its own.
        attempt("joins", lambda: joins(runner, self.config, (1, 64, STREAMS)))
        attempt("graph_times", lambda: graph_times(runner))
        for rows in LOOPS:
            attempt(f"loop_{rows}", partial(self.loop, rows))
        tell(captures_after_ready=runner.captures - runner.captures_at_start,
             kernels_after_ready=self.compiled.found + self.compiled.made - ready)  # fmt: skip

    def made_again(self) -> None:
        """Make the runner for the second part alone, with pages for every stream."""
        compilers = spike_compile.start("runner", COMPILE_PROCESSES)
        attempt("weights", self.draw)
        tell(compiling=spike_compile.finish(compilers, COMPILE_LIMIT_S))
        attempt("capture", self.capture)
        if hasattr(self, "runner"):
            attempt("joins", lambda: joins(self.runner, self.config, (1, STREAMS)))

    def loop(self, rows: int) -> None:
        """Run the loop at one batch size."""
        alone_ms = _told.get(f"frame_ms_b{rows}")
        tell(**run_loop(self.runner, rows, LOOPS[rows], STEPS, STREAMS, alone_ms))

    def second(self) -> None:
        """Run what tells how to go on."""
        if hasattr(self, "runner"):
            attempt("profile", lambda: profile(self.runner))
        attempt("eager", lambda: eager_baseline(self.config), needs_s=20)


def measure(parts: str) -> None:
    """Run everything on the device, or only the first or the second part."""
    torch.backends.cudnn.allow_tf32 = False  # fp32 models are the reference
    device = torch.cuda.get_device_properties(0)
    tell(device=device.name, torch=torch.__version__, total_mib=device.total_memory >> 20)
    run = Run()
    if parts != "second":
        run.first()
    else:
        run.made_again()
    if parts != "first":
        run.second()


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="toy shapes on the CPU")
    parser.add_argument("--out", type=Path, help="folder of spike.json")
    parser.add_argument("--parts", choices=("all", "first", "second"), default="all")
    asked = parser.parse_args()
    _out.extend([asked.out] if asked.out else [])
    if asked.dry:
        dry()
        return
    if ON_DEVICE:
        measure(asked.parts)
    else:
        print("no CUDA device here; --dry checks what a CPU can")


if __name__ == "__main__":
    main()

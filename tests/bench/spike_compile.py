"""Fill Triton's cache from many processes before anything is timed.

    start("runner", 12) ... finish(processes)

A true-shape runner needs some 130 compilations of 1 to 20 s: minutes when each launch waits for
its own. Every process records all launches over tensors without storage and compiles its share
through Triton's own launch path, with a driver that names the device and never opens it, so that
the keys are those of the real launches.
"""

import os
import subprocess
import sys
import time
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tests.bench import offline_compile
from tests.bench.true_shapes import SPIKE_CODEC_PAIRS, SPIKE_PROMPTS, SPIKE_ROWS, SPIKE_SIZES

Launch = tuple[JITFunction, list[Any], dict[str, Any]]


class _Pointer:
    """What specialisation asks a tensor for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self._address = tensor.storage_offset() * tensor.element_size()

    def data_ptr(self) -> int:
        """Return the offset: allocations are aligned."""
        return self._address


class _NoDevice:
    """Stands for Triton's driver while nothing is launched."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        """Return what to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """Return the key of the compiled kernels: one device."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Return no stream."""
        return 0


class Recorded(offline_compile.Launches):
    """Distinct launches with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []

    def record(self, function: JITFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note one launch if its specialisation is new."""
        options, before = dict(kwargs), len(self.sources)
        super().record(function, args, kwargs)
        if len(self.sources) > before:
            told = [_Pointer(a) if isinstance(a, torch.Tensor) else a for a in args]
            self.launches.append((function, told, options))


def launches_of(part: str) -> list[Launch]:
    """Return the distinct launches of a part of the run: "runner" or "numerics"."""
    shapes = {
        "runner": (SPIKE_ROWS, SPIKE_PROMPTS, SPIKE_CODEC_PAIRS),
        "numerics": ((32,), SPIKE_PROMPTS[:1], [(1, 1)]),
    }[part]
    found = Recorded()
    offline_compile.record(lambda: offline_compile.runner(SPIKE_SIZES, *shapes), found)
    return found.launches


def compile_share(part: str, index: int, count: int, capability: int) -> int:
    """Compile every `count`-th launch of a part from `index` on; return how many failed."""
    driver.set_active(_NoDevice(capability))
    failed = 0
    # Slow ones stand together: every process takes one of each run of `count`.
    for function, args, options in launches_of(part)[index::count]:
        try:
            function.run(*args, grid=(1,), warmup=True, **options)
        except Exception as error:  # told; the launch itself will say it again
            failed += 1
            print(f"{function.fn.__name__}: {type(error).__name__}: {error}"[:400], flush=True)
    return failed


def start(part: str, processes: int, capability: int = 90) -> "list[subprocess.Popen[str]]":
    """Start the processes of a part; they see no device."""
    hidden = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.bench.spike_compile", part]
    return [
        subprocess.Popen([*command, str(i), str(processes), str(capability)], env=hidden,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for i in range(processes)
    ]  # fmt: skip


def finish(processes: "list[subprocess.Popen[str]]", timeout_s: float) -> dict[str, Any]:
    """Wait until all are done, or stop them; return what they said that matters."""
    ends_s, said, stopped = time.monotonic() + timeout_s, "", 0
    for process in processes:
        try:
            out, _ = process.communicate(timeout=max(0.1, ends_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
            stopped += 1
        said += out
    codes = [process.returncode for process in processes]
    return {"stopped": stopped, "failed": sum(c != 0 for c in codes), "said": said[-1500:]}


if __name__ == "__main__":
    _part, *_numbers = sys.argv[1:]
    raise SystemExit(min(compile_share(_part, *map(int, _numbers)), 100))

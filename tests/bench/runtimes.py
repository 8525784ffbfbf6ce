"""Other ways to run the embedded voice on a CPU beside the one that ships, in one process.

    python -m tests.bench.runtimes                             # a checkout, under 4 minutes
    python -m tests.bench.runtimes --batches 4 --compile 4     # the same, compiled
    python -m tests.bench.runtimes --threads 2 --compile       # two threads, nothing compiled

Three parts of a frame, batches of 1 and 4, one thread, as shipped:

- `torch`: what ships, eager torch as the runner calls it;
- `compiled`: torch.compile, default mode, static shapes; needs a C++ compiler and two minutes a
  batch size (`--compile`, by default 1 alone);
- `onnx`: ONNX Runtime; needs the packages `onnx` and `onnxscript` to export.

Both others get one graph, traced by torch.export from the modules of `engine/models` with their
state as inputs and outputs, and no code of their own:

- `talker`: one step behind 63 positions: row, position, keys and values in; scores, state, the new
  keys and values out;
- `predictor`: all 15 steps, sampling included: state, first code and noise in; 16 codes out;
- `codec`: one frame behind a full window: codes and the carried rows in; samples and rows out.

Shapes are fixed, the rows of a batch equally long, and nobody moves state between slots and
graphs: the best case of the two others. `whole` is a frame of the runner with all that is around
the parts. Writes `results/runtimes-cpu.json`.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
import logging
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.models.loader import Model, load_model
from tests.bench.result import write_result
from tests.bench.runtime_parts import Part, make_parts, whole_frame

ROUND_S = 0.03
OPSET = 23
"""The first with attention of grouped heads."""
COMPILED, ONNX = "compiled", "onnx"


# -- the other ways


@dataclass
class Graph:
    """One part at one batch size as torch.export traced it, and as an ONNX file."""

    program: torch.export.ExportedProgram
    onnx: Path | None


def trace(part: Part, folder: Path | None) -> Graph:
    """Trace a part; write it as ONNX into `folder` where there is one."""
    with torch.no_grad():
        part.core(*part.inputs[0])  # fills the caches of constants, which a trace must not
        program = torch.export.export(part.core, part.inputs[0])
    if folder is None:
        return Graph(program, None)
    path = folder / f"{part.name}_b{len(part.inputs[0][0])}.onnx"
    written = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=OPSET,
        verbose=False,
        custom_translation_table={torch.ops.aten.as_strided.default: _windows_as_rows},
    )
    assert written is not None
    written.save(path)
    return Graph(program, path)


def _windows_as_rows(
    x: Any, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
) -> Any:
    """Say a convolution's windows [B, T, kernel, C] in ONNX: rows of x [B, P + T, C], copied.

    The exporter's own as_strided computes every element's index in a loop.
    """
    from onnxscript import opset18

    num_rows, kernel, channels = size[1:]
    assert stride[1] == channels and stride[3] == 1 and storage_offset == 0
    taps = np.arange(kernel) * (stride[2] // channels)
    index = np.arange(num_rows)[:, None] + taps
    flat = opset18.Constant(value_ints=index.ravel().tolist())
    return opset18.Reshape(opset18.Gather(x, flat, axis=1), opset18.Constant(value_ints=[*size]))


Call = Callable[[tuple[Tensor, ...]], Sequence[Any]]
"""A graph's inputs to its outputs, tensors or arrays."""


def compiled(graph: Graph, num_threads: int) -> Call:
    """Return the graph under torch.compile; its first call compiles."""
    assert torch.get_num_threads() == num_threads
    run = torch.compile(graph.program.module(), dynamic=False)
    return lambda inputs: run(*inputs)


def onnx(graph: Graph, num_threads: int) -> Call:
    """Return the graph's ONNX file as a session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    # Threads that spin after a call would take the core from the next way's turn.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(str(graph.onnx), options)
    names = [each.name for each in session.get_inputs()]

    def call(inputs: tuple[Tensor, ...]) -> Sequence[Any]:
        given = dict(zip(names, (each.numpy() for each in inputs), strict=True))
        return session.run(None, given)

    return call


START: dict[str, Callable[[Graph, int], Call]] = {COMPILED: compiled, ONNX: onnx}


# -- measuring


@torch.inference_mode()
def race(ways: dict[str, Callable[[], object]], num_rounds: int) -> dict[str, float]:
    """Return each way's ms a call, median of rounds in which the ways take turns to begin."""
    calls = {}
    for name, call in ways.items():
        call()
        started_s = time.perf_counter()
        call()
        calls[name] = max(1, round(ROUND_S / (time.perf_counter() - started_s)))
    taken: dict[str, list[float]] = {name: [] for name in ways}
    order = list(ways)
    for turn in range(num_rounds):
        first = turn % len(order)
        for name in order[first:] + order[:first]:
            call = ways[name]
            call()  # the caches are the last way's
            started_s = time.perf_counter()
            for _ in range(calls[name]):
                call()
            taken[name].append((time.perf_counter() - started_s) * 1e3 / calls[name])
    return {name: statistics.median(times) for name, times in taken.items()}


@torch.inference_mode()
def difference(part: Part, call: Call) -> dict[str, float]:
    """Return the largest error against what ships; of codes, how many differ."""
    pairs = [
        (torch.as_tensor(made), told)
        for given, expected in zip(part.inputs, part.expected, strict=True)
        for made, told in zip(call(given), expected, strict=True)
    ]
    if part.name == "predictor":
        return {"codes_differ": sum(int((made != told).sum()) for made, told in pairs)}
    return {"error": max(float((made - told).abs().max()) for made, told in pairs)}


@dataclass
class Bench:
    """What one run measures with, and what it found."""

    model: Model
    num_rounds: int
    others: tuple[str, ...]
    folder: Path
    parts: dict[int, list[tuple[Part, Graph]]] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)

    def prepare(self, batch: int) -> None:
        """Build, trace and export the parts of a batch size, once."""
        if batch not in self.parts:
            folder = self.folder if ONNX in self.others else None
            self.parts[batch] = [
                (part, trace(part, folder)) for part in make_parts(self.model, batch)
            ]
            files = [graph.onnx for _, graph in self.parts[batch] if graph.onnx is not None]
            if files:
                size_bytes = sum(path.stat().st_size for path in files)
                self.figures[f"onnx_files_mb_b{batch}"] = size_bytes / 1e6

    def measure(self, batch: int, num_threads: int, others: Sequence[str]) -> float:
        """Measure all parts and a whole frame of one batch size; return the seconds compiled."""
        torch.set_num_threads(num_threads)
        self.prepare(batch)
        at = f"b{batch}" if num_threads == 1 else f"b{batch}_{num_threads}threads"
        sums_ms = dict.fromkeys(("torch", *others), 0.0)
        start_s = dict.fromkeys(others, 0.0)
        for part, graph in self.parts[batch]:
            ways: dict[str, Callable[[], object]] = {"torch": part.shipped}
            for other in others:
                call, took_s = started(other, part, graph, num_threads)
                start_s[other] += took_s
                ways[other] = functools.partial(call, part.inputs[0])
                for name, value in difference(part, call).items():
                    self.figures[f"{part.name}_{name}_{other}_{at}"] = value
            taken_ms = race(ways, self.num_rounds)
            for way, ms in taken_ms.items():
                sums_ms[way] += ms
                self.figures[f"{part.name}_ms_{way}_{at}"] = ms
                if way != "torch":
                    self.figures[f"{part.name}_ratio_{way}_{at}"] = ms / taken_ms["torch"]
        whole_ms = race({"torch": whole_frame(self.model, batch)}, self.num_rounds)["torch"]
        self.figures[f"whole_ms_torch_{at}"] = whole_ms
        for other in others:
            # What lies around the parts stays as it is.
            saved_ms = sums_ms["torch"] - sums_ms[other]
            self.figures[f"whole_ratio_{other}_{at}"] = 1 - saved_ms / whole_ms
            self.figures[f"start_s_{other}_{at}"] = start_s[other]
        print(table(self.figures, batch, at))
        return start_s.get(COMPILED, 0.0)


@torch.inference_mode()
def started(way: str, part: Part, graph: Graph, num_threads: int) -> tuple[Call, float]:
    """Return a way that has run once, and the seconds until then."""
    before_s = time.perf_counter()
    call = START[way](graph, num_threads)
    call(part.inputs[0])
    return call, time.perf_counter() - before_s


def possible() -> tuple[str, ...]:
    """Return the other ways that can be taken here; say why the rest can't."""
    found = []
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        print("compiled: skipped, there is no C++ compiler ($CXX or g++)")
    else:
        found.append(COMPILED)
    wanted = ("onnx", "onnxscript", "onnxruntime")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        print(f"onnx: skipped, install {', '.join(missing)}")
    else:
        found.append(ONNX)
    return tuple(found)


def installed_mb(package: str) -> float:
    """Return what a package's files take on disk."""
    files = importlib.metadata.files(package) or []
    return (
        sum(path.stat().st_size for file in files if (path := Path(str(file.locate()))).is_file())
        / 1e6
    )


def table(figures: dict[str, float], batch: int, at: str) -> str:
    """Return a batch size's rows of the page's table: ms as shipped, then shares of that."""
    rows = []
    for part in ("talker", "predictor", "codec", "whole"):
        shares = (figures.get(f"{part}_ratio_{other}_{at}") for other in (COMPILED, ONNX))
        cells = ("" if share is None else f"{share:.2f}" for share in shares)
        shipped_ms = figures[f"{part}_ms_torch_{at}"]
        rows.append(f"| {part}, batch {batch} | {shipped_ms:.2f} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    """Measure what fits into the time, and write after each batch size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--compile", type=int, nargs="*", default=[1], help="of these batches")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--limit-s", type=float, default=230.0)
    parser.add_argument("--results", type=Path, help="folder of the result file")
    options = parser.parse_args()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision
    torch.compiler.config.force_disable_caches = True  # a start is a first one
    began_s, longest_s = time.monotonic(), 0.0
    command = "python -m tests.bench.runtimes"
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(load_model(EMBEDDED_VOICE), options.rounds, possible(), Path(folder))
        if ONNX in bench.others:
            bench.figures["onnxruntime_installed_mb"] = installed_mb("onnxruntime")
        for batch in options.batches:
            stage_s = time.monotonic()
            if stage_s - began_s + longest_s > options.limit_s:
                print(f"batch {batch}: skipped, {options.limit_s:.0f} s do not hold it (--limit-s)")
                continue
            others = [each for each in bench.others if each != COMPILED or batch in options.compile]
            compiled_s = bench.measure(batch, options.threads, others)
            longest_s = max(longest_s, time.monotonic() - stage_s - compiled_s)
            figures = {name: round(value, 7) for name, value in bench.figures.items()}
            print(write_result("runtimes", "cpu", figures, command, options.results))


if __name__ == "__main__":
    main()

"""Compile every launch of the graphs at true shapes for a device that is not here.

Bodies run over tensors without storage while launches are recorded instead of made; each distinct
one is compiled to machine code by Triton's own tools. Shows what the interpreter cannot: type and
shape errors of the real compiler, spills, shared memory over the limit.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

if TYPE_CHECKING:
    from playhead.engine.cuda_state import StateSizes

HOPPER = GPUTarget("cuda", 90, 32)
SHARED_LIMIT_BYTES = 227 * 1024
OPTIONS = ("num_warps", "num_stages")
_TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


class Launches:
    """Distinct launches seen while recording, in order."""

    def __init__(self) -> None:
        self.sources: dict[str, tuple[JITFunction, ASTSource, dict[str, int]]] = {}

    def record(self, function: JITFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note one launch: the specialisation Triton would pick for these arguments."""
        options = {k: kwargs.pop(k) for k in OPTIONS if k in kwargs}
        signature: dict[str, str] = {}
        constants: dict[tuple[int], Any] = {}
        attributes: dict[tuple[int], Any] = {}
        for index, (param, value) in enumerate(zip(function.params, args, strict=True)):
            if param.is_constexpr:
                signature[param.name], constants[(index,)] = "constexpr", value
            elif isinstance(value, torch.Tensor):
                signature[param.name] = _TYPES[value.dtype]
                if value.storage_offset() * value.element_size() % 16 == 0:
                    attributes[(index,)] = [["tt.divisibility", 16]]
            elif isinstance(value, float):
                signature[param.name] = "fp32"
            elif value == 1 and not param.do_not_specialize:
                signature[param.name], constants[(index,)] = "constexpr", 1
            else:
                signature[param.name] = "i64" if value >= 1 << 31 else "i32"
                if value % 16 == 0 and not param.do_not_specialize:
                    attributes[(index,)] = [["tt.divisibility", 16]]
        source = ASTSource(function, signature, constants, attributes)
        key = f"{function.fn.__name__} {signature} {constants} {attributes} {options}"
        self.sources.setdefault(key, (function, source, options))


def record(run: Callable[[], None], into: Launches) -> None:
    """Run `run` with every kernel launch recorded instead of made."""
    made = JITFunction.run

    def instead(self: JITFunction, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        into.record(self, args, kwargs)

    JITFunction.run = instead
    try:
        run()
    finally:
        JITFunction.run = made


def resources(cubin: bytes) -> tuple[int, int]:
    """Return registers a thread and stack bytes of a compiled kernel."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", told.stdout + told.stderr)
    assert found is not None, told
    return int(found[1]), int(found[2])


def compile_all(
    launches: Launches, only: str = "", say: Callable[[str], None] = print
) -> list[str]:
    """Compile each launch; return what failed or does not fit the device."""
    wrong: list[str] = []
    for key, (function, source, options) in launches.sources.items():
        if only not in function.fn.__name__:
            continue
        name, started_s = function.fn.__name__, time.perf_counter()
        try:
            made = triton.compile(source, target=HOPPER, options=options)
        except Exception as error:  # every failure is told, with the launch it belongs to
            wrong.append(
                f"{name}: {type(error).__name__}: {str(error)[-400:]} {error.__cause__}\n"
                f"   {key[:600]}"
            )
            say(f"FAIL {name}")
            continue
        shared = made.metadata.shared
        if shared > SHARED_LIMIT_BYTES:
            wrong.append(f"{name}: {shared} bytes of shared memory\n   {key[:300]}")
        took_s = time.perf_counter() - started_s
        registers, stack = resources(made.asm["cubin"])
        if stack:
            wrong.append(f"{name}: spills, {stack} bytes of stack\n   {key[:900]}")
        say(
            f"{name} {options} shared {shared} B, {registers} registers, compiled in {took_s:.1f} s"
        )
    return wrong


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Return a tensor without storage."""
    return torch.empty(*shape, dtype=dtype, device="meta")


def runner(
    sizes: "StateSizes", rows: tuple[int, ...], prompt_rows: tuple[int, ...],
    pairs: "Sequence[tuple[int, int]]", talker_layers: int | None = None,
) -> None:  # fmt: skip
    """Launch what a runner captures, and its joins: every frame, prompt and codec shape."""
    from playhead.engine.cuda_codec import CodecBody, held_values
    from playhead.engine.cuda_frame import FrameBody, FrameBuffers, PromptBody
    from playhead.engine.cuda_state import Arena, CodecState, TalkerState
    from playhead.engine.units import CODEBOOKS, FRAME_SAMPLES
    from playhead.kernels import frame
    from tests.bench.true_shapes import true_config, true_weights

    config = true_config(talker_layers=talker_layers)
    weights, codec = true_weights("meta", torch.bfloat16, sizes.max_positions, config)
    talker, state = TalkerState(weights, sizes), CodecState(codec, sizes.num_slots)
    buffers = FrameBuffers(weights, talker, max(*rows, *prompt_rows))
    for n in rows:
        FrameBody(weights, talker, buffers, n).run()
    for n in prompt_rows:
        PromptBody(weights, talker, buffers, n).run()
    columns = frame.JOIN_HEAD + talker.page_table.shape[1]
    joiners = empty(4, columns, dtype=torch.int32)
    frame.join_streams(joiners, weights.start_row, talker.carry, talker.wholes, talker.reals,
                       talker.seen, talker.page_table, state.frames)  # fmt: skip
    frame.copy_prefixes(joiners, talker.prefixes, talker.cache, 1)
    most = max(streams * n for streams, n in pairs)
    arena = Arena(max(held_values(codec, state.pasts_of, *pair) for pair in pairs), codec.tables)
    flat = empty(most * (CODEBOOKS + 1), dtype=torch.int32)
    samples = empty(most * FRAME_SAMPLES, dtype=torch.float32)
    pcm = empty(most * FRAME_SAMPLES + 256, dtype=torch.int16)
    for streams, n in pairs:
        CodecBody(codec, state, arena, streams, n, flat[streams:], flat, samples, pcm).run()


def main() -> None:
    """Record the frame, prompt, join and codec bodies at true shapes and compile them."""
    from playhead.engine.cuda_state import StateSizes

    sizes, launches = StateSizes(64, 512, 64), Launches()
    pairs = ((1, 1), (8, 1), (8, 4), (64, 8))
    record(lambda: runner(sizes, (8, 64), (16,), pairs, talker_layers=1), launches)
    print(f"{len(launches.sources)} distinct launches")
    wrong = compile_all(launches, *sys.argv[1:])
    print("\n".join(wrong) or "all compiled")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()

"""Times of single kernels by variant, in chains inside one graph over rotated operands.

What wins here becomes a default in the kernel files with the figures as its reason.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from playhead.engine.cuda_frame import FramePlan, LayerPlan
from playhead.kernels import attention, conv, norm, sampler
from playhead.kernels.conv import ConvWeight, Rows, Snake, Tile
from playhead.kernels.skinny import SkinnyPlan, SkinnyScratch, skinny_product

CHAIN_BYTES = 400 << 20
"""Operands of a chain are rotated over this much memory, several times the L2."""
Tell = Callable[..., None]


def chain_us(call: Callable[[int], None], count: int) -> float:
    """Return the median time of one call in a graph of `count` calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(count):
                call(i)
        times = []
        for _ in range(9):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
    return round(sorted(times)[4] / count * 1e3, 2)


def _random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").mul_(0.05).to(torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Product:
    """One long product of a layer."""

    name: str
    outputs: int
    depth: int
    gated: bool


PRODUCTS = (
    Product("own_out", 1024, 2048, False),
    Product("own_down", 1024, 3072, True),
    Product("talker_out", 2048, 2048, False),
    Product("talker_down", 2048, 6144, True),
)


def candidates(product: Product) -> Iterator[SkinnyPlan]:
    """Yield plans that fill the device with 96 to 300 programs."""
    for outputs in (16, 32, 64):
        for splits in (1, 2, 3, 4, 6, 8):
            programs = product.outputs // outputs * splits
            for depth in (128, 256):
                if 96 <= programs <= 300 and product.depth % (splits * depth) == 0:
                    yield SkinnyPlan(outputs, depth, splits, 4, 4 if depth == 128 else 3)


def products(tell: Tell) -> FramePlan:
    """Time the library against skinny products; return the plan of what won at 8 rows."""
    best: dict[str, SkinnyPlan | None] = {}
    for product in PRODUCTS:
        bench = _ProductBench(product)
        library = {rows: bench.library_us(rows) for rows in (8, 32, 64)}
        timed = sorted((bench.skinny_us(p, 8), repr(p), p) for p in candidates(product))
        top = [plan for _, _, plan in timed[:2]]
        table = {"8": [timed[0][0], repr(top[0])]}
        for rows in (32, 64):
            us, name = min((bench.skinny_us(p, rows), repr(p)) for p in top)
            table[str(rows)] = [us, name]
        best[product.name] = top[0] if timed[0][0] < library[8] * 0.97 else None
        tell(**{f"product_{product.name}": {"library_us": library, "skinny_us": table}})
    return FramePlan(
        talker=LayerPlan(best["talker_out"], best["talker_down"]),
        predictor=LayerPlan(best["own_out"], best["own_down"]),
    )


class _ProductBench:
    """Operands of one product."""

    def __init__(self, product: Product) -> None:
        self._p = product
        size = product.outputs * product.depth * 2
        self._weights = [_random(product.outputs, product.depth) for _ in
                         range(max(8, CHAIN_BYTES // size))]  # fmt: skip
        self._x = _random(64, product.depth * (2 if product.gated else 1))
        self._gated, self._y = _random(64, product.depth), _random(64, product.outputs)
        self._out = torch.empty_like(self._y)
        self._scratch = SkinnyScratch(64 * 8 * product.outputs, 1024, self._x)
        self._count = min(3 * len(self._weights), 120)

    def library_us(self, rows: int) -> float:
        """Time the library's product, with the gate's launch before it where there is one."""

        def call(i: int) -> None:
            x = self._x[:rows]
            if self._p.gated:
                norm.gate_rows(x, self._gated[:rows], 1e-6, self._y[:rows])
                x = self._gated[:rows]
            weight = self._weights[i % len(self._weights)]
            norm.project(x, weight, self._out[:rows], self._y[:rows])

        return chain_us(call, self._count)

    def skinny_us(self, plan: SkinnyPlan, rows: int) -> float:
        """Time one plan."""

        def call(i: int) -> None:
            y = self._y[:rows]
            skinny_product(
                self._x[:rows], self._weights[i % len(self._weights)], self._out[:rows],
                self._scratch, plan, y, self._p.gated, y if self._p.gated else None, 1e-6,
            )  # fmt: skip

        return chain_us(call, self._count)


ATTENTION_SHAPES = ((32, 4), (64, 4), (64, 8), (128, 8))
"""Positions a step and warps of the paged attention."""
WARPS = (1, 2, 4, 8)


def small_kernels(runner: Any, tell: Tell) -> None:
    """Time attention, sampler and gate by warps and blocks, over the runner's own state."""
    for rows in (8, 32, 256):
        for ctx in (63, 511):
            told = {f"{b}x{w}": _attention_us(runner, rows, ctx, b, w) for b, w in ATTENTION_SHAPES}
            tell(**{f"attention_us_b{rows}_ctx{ctx}": told})
    for warps in WARPS:
        tell(**{f"warps_{warps}_us": _predictor_us(runner, warps)})
    p = runner.buffers.predictor
    gate = chain_us(lambda i: norm.gate_rows(p.gate_up[:8], p.gated[:8], 1e-6, p.y[:8]), 60)
    tell(gate_us=gate)


def _slots(rows: int) -> Tensor:
    return torch.arange(1, rows + 1, dtype=torch.int32, device="cuda")


def _attention_us(runner: Any, rows: int, ctx: int, block: int, warps: int) -> float:
    stack, state, b = runner.weights.talker, runner.talker_state, runner.buffers
    slots, t = _slots(rows), b.talker
    positions = torch.full((rows,), ctx, dtype=torch.int32, device="cuda")

    def attend(i: int) -> None:
        attention.paged_attention(
            t.qkv[:rows], state.cache[i % stack.config.num_layers], state.page_table, slots,
            positions, stack.layers[0].norms, stack.rope, t.mixed[:rows], b.scratch, 1e-6,
            t.x[:rows], True, block, warps,
        )  # fmt: skip

    return chain_us(attend, 56)


def _predictor_us(runner: Any, warps: int) -> dict[str, float]:
    own, state, b = runner.weights.predictor, runner.talker_state, runner.buffers
    rows, p = 8, runner.buffers.predictor
    slots = _slots(rows)

    def mix(i: int) -> None:
        attention.predictor_attention(
            p.qkv[:rows], b.own_cache[i % 5, :rows], own.layers[0].norms, own.rope,
            p.mixed[:rows], 8, 1, 1e-6, p.x[:rows], warps,
        )  # fmt: skip

    def choose(i: int) -> None:
        sampler.choose_codes(
            b.own_logits[:rows], slots, slots, state.reals, state.wholes, state.seen,
            b.codes[:rows], 3, runner.weights.num_codes, 2, runner.weights.inputs[3],
            p.y[:rows], p.x[:rows], 1e-6, warps,
        )  # fmt: skip

    return {"own_attention": chain_us(mix, 60), "sampler": chain_us(choose, 60)}


CONVS = ((768, 768, 7, 32), (384, 384, 7, 160), (192, 192, 7, 640), (96, 96, 7, 1920),
         (96, 96, 1, 1920), (1536, 6144, 2, 4), (1024, 1536, 7, 4))  # fmt: skip
"""Channels, outputs, taps and rows a frame of the codec's heavy convolutions."""
TILES = (
    Tile(128, 128, 64, 8, 3), Tile(128, 128, 64, 8, 4), Tile(64, 128, 64, 4, 4),
    Tile(128, 64, 64, 4, 4), Tile(256, 64, 32, 8, 4),
    Tile(128, 32, 32, 4, 4), Tile(256, 32, 32, 8, 4), Tile(128, 128, 32, 8, 4),
)  # fmt: skip


def convolutions(tell: Tell) -> None:
    """Time each heavy convolution by tile at 256 frames and tell TFLOP/s beside it."""
    for shape in CONVS:
        told = {}
        for tile in (None, *TILES):
            if tile is None or (shape[0] % tile.depth == 0 and tile.outputs <= 2 * shape[1]):
                told[repr(tile)] = _conv_us(*shape, tile)
        tell(**{"conv_{}x{}k{}_r{}_us_tflops".format(*shape): told})


def _conv_us(
    channels: int, outputs: int, taps: int, per_frame: int, tile: Tile | None
) -> list[float] | str:
    streams, past, num = 64, taps - 1, per_frame * 4
    held = Rows(_random(streams, past + num, channels), past)
    bias, ones = torch.zeros(outputs, device="cuda"), torch.ones(outputs, device="cuda")
    weight = ConvWeight(_random(taps * channels, outputs), bias, taps, 1)
    into = Rows(torch.empty(streams, num, outputs, device="cuda", dtype=torch.bfloat16), 0)

    def call(i: int) -> None:
        conv.causal_conv(held, weight, curved=into, snake=Snake(ones, ones), tile=tile)

    try:
        us = chain_us(call, 6)
    except Exception as error:  # a tile that does not fit the device is told, not fatal
        return type(error).__name__
    return [us, round(2 * streams * num * outputs * taps * channels / us / 1e6)]

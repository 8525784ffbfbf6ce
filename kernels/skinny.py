# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""Products of few rows with a long reduction: split over K, merged in order by the last program.

The library keeps only 0.7 to 2.1 TB/s in flight for the output and down projections of 8 to 64
rows. Here each weight tile is cut over K into as many programs as fill the device, the residual
is added by whoever merges, and the gated activation can be made on the way in, which saves its
launch. The order of the sum is fixed, so results do not depend on timing. Twin: twins_frame.py.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _row_scales(source, m, in_m, eps, WIDTH: tl.constexpr, BM: tl.constexpr):
    """Return the norm scales [BM] of rows of `source`."""
    CHUNK: tl.constexpr = 256
    total = tl.zeros((BM,), tl.float32)
    for start in range(0, WIDTH, CHUNK):
        column = start + tl.arange(0, CHUNK)
        inside = in_m[:, None] & (column < WIDTH)[None, :]
        value = tl.load(source + m[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)
        value = value.to(tl.float32)
        total += tl.sum(value * value, 1)
    return tl.rsqrt(total / WIDTH + eps)


@triton.jit(do_not_specialize=["rows"])
def _skinny(
    x, weight, residual, source, out, partial, arrived, rows, eps,
    K: tl.constexpr, N: tl.constexpr, SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GATED: tl.constexpr, SOURCE_WIDTH: tl.constexpr, HAS_RESIDUAL: tl.constexpr,
):  # fmt: skip
    tile_n = tl.program_id(0)
    split = tl.program_id(1)
    tile_m = tl.program_id(2)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    in_m = m < rows
    PER: tl.constexpr = K // SPLITS
    element = weight.dtype.element_ty
    scale = tl.full((BM,), 1.0, tl.float32)
    if SOURCE_WIDTH > 0:
        scale = _row_scales(source, m, in_m, eps, SOURCE_WIDTH, BM)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(PER // BK):
        k = split * PER + step * BK + tl.arange(0, BK)
        b = tl.load(weight + n[:, None] * K + k[None, :])
        if GATED:
            at = x + m[:, None] * (2 * K) + k[None, :]
            gate = tl.load(at, mask=in_m[:, None], other=0.0).to(tl.float32) * scale[:, None]
            up = tl.load(at + K, mask=in_m[:, None], other=0.0).to(tl.float32) * scale[:, None]
            a = (gate * tl.sigmoid(gate) * up).to(element)
        else:
            a = tl.load(x + m[:, None] * K + k[None, :], mask=in_m[:, None], other=0.0)
        total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
    into = m[:, None] * N + n[None, :]
    if SPLITS == 1:
        if HAS_RESIDUAL:
            total += tl.load(residual + into, mask=in_m[:, None], other=0.0).to(tl.float32)
        tl.store(out + into, total.to(out.dtype.element_ty), mask=in_m[:, None])
    else:
        tile = tile_m * (N // BN) + tile_n
        spot = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        mine = partial + (tile * SPLITS + split) * (BM * BN)
        tl.store(mine + spot, total)
        tl.debug_barrier()
        done = tl.atomic_add(arrived + tile, 1, sem="acq_rel")
        if done == SPLITS - 1:
            total = tl.zeros((BM, BN), tl.float32)
            for part in range(SPLITS):
                theirs = partial + (tile * SPLITS + part) * (BM * BN)
                total += tl.load(theirs + spot, cache_modifier=".cg")
            if HAS_RESIDUAL:
                total += tl.load(residual + into, mask=in_m[:, None], other=0.0).to(tl.float32)
            tl.store(out + into, total.to(out.dtype.element_ty), mask=in_m[:, None])
            tl.store(arrived + tile, 0)


@dataclass(frozen=True, slots=True)
class SkinnyPlan:
    """How one product is cut: outputs and depth of a tile, splits of K."""

    outputs: int
    depth: int
    splits: int
    num_warps: int = 4
    num_stages: int = 4


class SkinnyScratch:
    """Where split programs leave their sums; shared by products that run one after another."""

    def __init__(self, num_values: int, num_tiles: int, like: Tensor) -> None:
        """Reserve for products of up to `num_values` = padded rows * outputs * splits."""
        self.partial = like.new_empty(num_values, dtype=torch.float32)
        self.arrived = like.new_zeros(num_tiles, dtype=torch.int32)


def skinny_product(
    x: Tensor,
    weight: Tensor,
    out: Tensor,
    scratch: SkinnyScratch,
    plan: SkinnyPlan,
    residual: Tensor | None = None,
    gated: bool = False,
    source: Tensor | None = None,
    eps: float = 0.0,
) -> None:
    """Write f(x) @ weight.T (+ residual) to `out` [B, N]; weight [N, K] as checkpoints store it.

    f is the identity, or with `gated` silu(gate) * up of x [B, 2 K], scaled by the norm of
    `source` first (norm.gate_rows).
    """
    outputs, depth = weight.shape
    rows = x.shape[0]
    height = 16 if rows <= 16 else 32 if rows <= 32 else 64
    grid = (outputs // plan.outputs, plan.splits, triton.cdiv(rows, height))
    assert outputs % plan.outputs == 0 and depth % (plan.splits * plan.depth) == 0
    assert grid[0] * grid[2] <= scratch.arrived.numel()
    needed = grid[0] * grid[1] * grid[2] * height * plan.outputs
    assert plan.splits == 1 or needed <= scratch.partial.numel()
    _skinny[grid](
        x, weight, out if residual is None else residual, x if source is None else source, out,
        scratch.partial, scratch.arrived, rows, eps, depth, outputs, plan.splits, height,
        plan.outputs, plan.depth, gated, 0 if source is None else source.shape[1],
        residual is not None, num_warps=plan.num_warps, num_stages=plan.num_stages,
    )  # fmt: skip

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""Weight-only quantized products: weights are read in 8 or 4 bits and made wide in registers.

A frame's time is that of reading its weights, so the bytes read are what counts; activations,
sums and the result stay as they are. Scales are symmetric, from the largest magnitude:

    int8   one scale an output                values -127..127
    fp8    one scale an output                e4m3, decoded with integer operations: any device
    int4   one scale an output and group      values -7..7, two in a byte

The reduction is split over programs and merged in a fixed order. Twin: `dequantized`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

QuantizedKind = Literal["int8", "fp8", "int4"]
_INT8, _FP8, _INT4 = 0, 1, 2
_NUMBERS = {"int8": _INT8, "fp8": _FP8, "int4": _INT4}
_LARGEST = {"int8": 127.0, "fp8": 448.0, "int4": 7.0}
_DEPTHS = (128, 64, 32, 16)
_TOP_ROWS = 64
_MAX_PROGRAMS = 512
_MAX_OUTPUTS = 64
_ENOUGH_PROGRAMS = 256
"""Two programs a multiprocessor of the largest device so far."""


class PartialSums:
    """Where programs that share a reduction leave their sums, one product after another."""

    def __init__(self, num_values: int, num_tiles: int, like: Tensor) -> None:
        """Reserve for products of up to `num_values` = padded rows * outputs * splits."""
        self.partial = like.new_empty(num_values, dtype=torch.float32)
        self.arrived = like.new_zeros(num_tiles, dtype=torch.int32)


@dataclass(frozen=True, slots=True)
class Quantized:
    """A matrix [N, K] in few bits."""

    values: Tensor
    """int8 [N, K]; fp8: the bits, uint8 [N, K]; int4: uint8 [N, K / 2], of each group the first
    half in the low four bits and the second half in the high ones, 8 added."""
    scales: Tensor
    """fp32 [N]; int4: [N, K / group]."""
    kind: QuantizedKind
    scratch: PartialSums
    """Shared by products that run one after another."""

    @property
    def outputs(self) -> int:
        """N."""
        return self.values.shape[0]

    @property
    def depth(self) -> int:
        """K."""
        return self.values.shape[1] * (2 if self.kind == "int4" else 1)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)"""
        return self.outputs, self.depth

    @property
    def group(self) -> int:
        """Values of a row that share a scale."""
        return self.depth // (self.scales.shape[1] if self.kind == "int4" else 1)


Matrix = Tensor | Quantized
Round = Callable[[Tensor], Matrix]
"""From a folded matrix in fp32 to what is kept of it."""


def rounding(
    dtype: torch.dtype, kind: QuantizedKind | None = None, like: Tensor | None = None
) -> Round:
    """Return how matrices are kept: in `dtype`, or quantized with scratch on the device of `like`.

    All matrices of one rounding share its scratch.
    """
    if kind is None or like is None:
        return lambda matrix: matrix.to(dtype)
    scratch = scratch_for(like)
    return lambda matrix: quantize(matrix, kind, scratch)


def scratch_for(like: Tensor) -> PartialSums:
    """Reserve what any product here needs, 8 MiB, on the device of `like`."""
    return PartialSums(_TOP_ROWS * _MAX_PROGRAMS * _MAX_OUTPUTS, _MAX_PROGRAMS, like)


def quantize(matrix: Tensor, kind: QuantizedKind, scratch: PartialSums) -> Quantized:
    """Round a matrix [N, K] to the nearest values of a kind; K is a multiple of 16."""
    outputs, depth = matrix.shape
    group = _largest_depth(depth) if kind == "int4" else depth
    wide = matrix.float().view(outputs, depth // group, group)
    scales = wide.abs().amax(-1, keepdim=True).clamp(min=1e-12) / _LARGEST[kind]
    scaled = wide / scales
    scales = scales[..., 0]
    if kind == "int4":
        low, high = (scaled.round() + 8).to(torch.uint8).chunk(2, -1)
        return Quantized((low | (high << 4)).view(outputs, -1), scales, kind, scratch)
    rows, scales = scaled.view(outputs, depth), scales[:, 0]
    if kind == "fp8":
        return Quantized(rows.to(torch.float8_e4m3fn).view(torch.uint8), scales, kind, scratch)
    return Quantized(rows.round().to(torch.int8), scales, kind, scratch)


def dequantized(weight: Quantized) -> Tensor:
    """Return the matrix [N, K] in fp32."""
    if weight.kind == "fp8":
        return weight.values.view(torch.float8_e4m3fn).float() * weight.scales[:, None]
    if weight.kind == "int8":
        return weight.values.float() * weight.scales[:, None]
    cells = weight.values.view(weight.outputs, -1, weight.group // 2)
    wide = torch.cat([cells & 15, cells >> 4], -1).float() - 8
    return (wide * weight.scales[..., None]).view(weight.outputs, weight.depth)


def _largest_depth(size: int) -> int:
    return next(depth for depth in _DEPTHS if size % depth == 0)


@triton.jit
def _widen(raw, KIND: tl.constexpr, element: tl.constexpr):
    """Return stored values as numbers, without their scale."""
    if KIND == 1:
        bits = raw.to(tl.int32)
        half = ((bits & 128) << 8) | ((bits & 127) << 7)
        return half.to(tl.int16).to(tl.float16, bitcast=True).to(element)
    return raw.to(element)


@triton.jit
def _finish(total, addend, out, m, n, in_m, addend_stride, out_stride, HAS_ADDEND: tl.constexpr):
    """Add what is added and store a tile."""
    if HAS_ADDEND:
        at = addend + m[:, None] * addend_stride + n[None, :]
        total += tl.load(at, mask=in_m[:, None], other=0.0).to(tl.float32)
    at = out + m[:, None] * out_stride + n[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=in_m[:, None])


@triton.jit(do_not_specialize=["rows"])
def _quantized(
    x, values, scales, addend, out, partial, arrived, rows, x_stride, addend_stride, out_stride,
    K: tl.constexpr, N: tl.constexpr, SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, KIND: tl.constexpr, HAS_ADDEND: tl.constexpr,
):  # fmt: skip
    tile_n = tl.program_id(0)
    split = tl.program_id(1)
    m = tl.program_id(2) * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    in_m = m < rows
    STEPS: tl.constexpr = K // (SPLITS * BK)
    element = x.dtype.element_ty
    row = x + m[:, None] * x_stride
    total = tl.zeros((BM, BN), tl.float32)
    for i in range(STEPS):
        step = split * STEPS + i
        if KIND == 2:  # a step is a group: its two halves share bytes and scales
            HALF: tl.constexpr = BK // 2
            k = tl.arange(0, HALF)
            raw = tl.load(values + n[:, None] * (K // 2) + (step * HALF + k)[None, :]).to(tl.int32)
            low = ((raw & 15) - 8).to(element)
            high = ((raw >> 4) - 8).to(element)
            at = row + (step * BK)
            if HALF >= 16:
                first = tl.load(at + k[None, :], mask=in_m[:, None], other=0.0)
                second = tl.load(at + (HALF + k)[None, :], mask=in_m[:, None], other=0.0)
                part = tl.dot(first, tl.trans(low), input_precision="ieee")
                part = tl.dot(second, tl.trans(high), part, input_precision="ieee")
            else:  # a matrix instruction is 16 deep: the halves of a group of 16 go in as one
                whole = tl.reshape(tl.permute(tl.join(low, high), (0, 2, 1)), (BN, BK))
                a = tl.load(at + tl.arange(0, BK)[None, :], mask=in_m[:, None], other=0.0)
                part = tl.dot(a, tl.trans(whole), input_precision="ieee")
            total += part * tl.load(scales + n * (K // BK) + step)[None, :]
        else:
            k = step * BK + tl.arange(0, BK)
            b = _widen(tl.load(values + n[:, None] * K + k[None, :]), KIND, element)
            a = tl.load(row + k[None, :], mask=in_m[:, None], other=0.0)
            total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
    if KIND != 2:
        total = total * tl.load(scales + n)[None, :]
    if KIND == 1:  # e4m3's bits inside fp16 read 2^8 too low: the exponent biases are 7 and 15
        total = total * 256.0
    if SPLITS == 1:
        _finish(total, addend, out, m, n, in_m, addend_stride, out_stride, HAS_ADDEND)
    else:
        spot = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        mine = partial + (tile_n * SPLITS + split) * (BM * BN)
        tl.store(mine + spot, total)
        tl.debug_barrier()
        done = tl.atomic_add(arrived + tile_n, 1, sem="acq_rel")
        if done == SPLITS - 1:  # the last to arrive merges, in the order of the splits
            total = tl.zeros((BM, BN), tl.float32)
            for part in range(SPLITS):
                theirs = partial + (tile_n * SPLITS + part) * (BM * BN)
                total += tl.load(theirs + spot, cache_modifier=".cg")
            _finish(total, addend, out, m, n, in_m, addend_stride, out_stride, HAS_ADDEND)
            tl.store(arrived + tile_n, 0)


def choose_cut(outputs: int, depth: int, step: int | None, rows: int) -> tuple[int, int, int]:
    """Return outputs and depth of a tile, and programs that share a reduction.

    `step` fixes the depth (a group of int4).
    """
    width = next(w for w in (64, 32, 16) if outputs % w == 0 and (w < 64 or outputs >= 4096))
    tiles = outputs // width
    for splits in (8, 4, 2):
        piece = depth // splits
        if rows > _TOP_ROWS or depth % splits or tiles * splits > _MAX_PROGRAMS:
            continue
        deep = step or next((d for d in _DEPTHS if piece % d == 0), 0)
        if deep and piece % deep == 0 and tiles * splits // 2 < _ENOUGH_PROGRAMS:
            return width, deep, splits
    return width, step or _largest_depth(depth), 1


def quantized_product(
    x: Tensor, weight: Quantized, out: Tensor, addend: Tensor | None = None
) -> None:
    """Write x @ weight.T (+ addend [B, N] or [N]) to `out` [B, N]; rows may lie apart."""
    rows, outputs, depth = x.shape[0], weight.outputs, weight.depth
    step = weight.group if weight.kind == "int4" else None
    width, deep, splits = choose_cut(outputs, depth, step, rows)
    height = 16 if rows <= 16 else 32 if rows <= 32 else _TOP_ROWS
    added = out if addend is None else addend
    added_stride = added.stride(0) if added.dim() == 2 else 0
    scratch = weight.scratch
    _quantized[(outputs // width, splits, triton.cdiv(rows, height))](
        x, weight.values, weight.scales, added, out, scratch.partial, scratch.arrived, rows,
        x.stride(0), added_stride, out.stride(0), depth, outputs, splits, height, width, deep,
        _NUMBERS[weight.kind], addend is not None, num_warps=4,
        num_stages=3 if height == _TOP_ROWS else 4,  # 99 KiB of shared memory on some cards
    )  # fmt: skip

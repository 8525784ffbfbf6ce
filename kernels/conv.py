# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""Causal convolutions of the codec as implicit matrix products, snake and GELU in the epilogue.

Rows are channels last. A convolution reads a held buffer [R, past + T, C]: its own past rows
first (codec_state.py loads and stores them), then the new rows, so no tap needs a mask. A
transposed convolution of kernel 2r and stride r is a causal one of kernel 2 with r * D outputs.
An epilogue writes plain rows (the residual stream), snake(rows) into the next held buffer, or
both. bf16 operands, fp32 accumulation and snake. Twins: twins_codec.py.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

NONE, GELU = 0, 1


@triton.jit
def sine_squared(x):
    """Return sin(x)^2: reduced modulo pi, then an odd polynomial, 5e-9 off at most."""
    turns = tl.floor(x * 0.3183098861837907 + 0.5)
    r = x - turns * 3.140625
    r = r - turns * 9.67502593994140625e-4
    r = r - turns * 1.509957990978376432e-7
    s = r * r
    p = 2.59989724e-06 * s - 1.98065439e-04
    p = p * s + 8.33301630e-03
    p = p * s - 1.66666571e-01
    y = r + r * s * p
    return y * y


@triton.jit
def _finish(
    total, m, n, bias, residual, alpha, inverse_beta, plain, curved, num_rows, rows_each,
    residual_stride, plain_stride, curved_stride, OUTPUTS: tl.constexpr, ACT: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, PLAIN: tl.constexpr, CURVED: tl.constexpr,
):  # fmt: skip
    """Epilogue of a tile: bias, activation, residual, snake, stores."""
    stream = (m // rows_each).to(tl.int64)
    in_n = n < OUTPUTS
    inside = (m < num_rows)[:, None] & in_n[None, :]
    column = (m % rows_each * OUTPUTS)[:, None] + n[None, :]
    total += tl.load(bias + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
    if ACT == 1:
        total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
    if HAS_RESIDUAL:
        at = residual + (stream * residual_stride)[:, None] + column
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    if PLAIN:
        at = plain + (stream * plain_stride)[:, None] + column
        tl.store(at, total.to(plain.dtype.element_ty), mask=inside)
    if CURVED:
        gain = tl.load(inverse_beta + n, mask=in_n, other=0.0)[None, :]
        wave = sine_squared(total * tl.load(alpha + n, mask=in_n, other=0.0)[None, :])
        at = curved + (stream * curved_stride)[:, None] + column
        tl.store(at, (total + gain * wave).to(curved.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows", "rows_each"])
def _conv(
    held, weight, bias, residual, alpha, inverse_beta, plain, curved, partial, arrived, num_rows,
    rows_each, held_stride, residual_stride, plain_stride, curved_stride,
    CHANNELS: tl.constexpr, OUTPUTS: tl.constexpr, TAPS: tl.constexpr, DILATION: tl.constexpr,
    ACT: tl.constexpr, HAS_RESIDUAL: tl.constexpr, PLAIN: tl.constexpr, CURVED: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    split = tl.program_id(2)
    in_m = m < num_rows
    in_n = n < OUTPUTS
    k = tl.arange(0, BK)
    rows = held + (m // rows_each).to(tl.int64) * held_stride + m % rows_each * CHANNELS
    total = tl.zeros((BM, BN), tl.float32)
    PER_TAP: tl.constexpr = (CHANNELS + BK - 1) // BK
    STEPS: tl.constexpr = TAPS * PER_TAP // SPLITS
    for i in range(STEPS):
        step = split * STEPS + i
        tap = step // PER_TAP
        channel = (step % PER_TAP) * BK + k
        at = rows[:, None] + (tap * DILATION * CHANNELS + channel)[None, :]
        if CHANNELS % BK == 0:
            a = tl.load(at, mask=in_m[:, None], other=0.0)
            b = tl.load(
                weight + (tap * CHANNELS + channel)[:, None] * OUTPUTS + n[None, :],
                mask=in_n[None, :], other=0.0,
            )  # fmt: skip
        else:
            real = channel < CHANNELS
            a = tl.load(at, mask=in_m[:, None] & real[None, :], other=0.0)
            b = tl.load(
                weight + (tap * CHANNELS + channel)[:, None] * OUTPUTS + n[None, :],
                mask=real[:, None] & in_n[None, :], other=0.0,
            )  # fmt: skip
        total = tl.dot(a, b, total, input_precision="ieee")
    if SPLITS == 1:
        _finish(
            total, m, n, bias, residual, alpha, inverse_beta, plain, curved, num_rows, rows_each,
            residual_stride, plain_stride, curved_stride, OUTPUTS, ACT, HAS_RESIDUAL, PLAIN, CURVED,
        )  # fmt: skip
    else:
        tile = tl.program_id(1) * ((OUTPUTS + BN - 1) // BN) + tl.program_id(0)
        spot = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
        cell = partial + tile * (SPLITS * BM * BN) + spot
        tl.store(cell + split * (BM * BN), total)
        tl.debug_barrier()
        done = tl.atomic_add(arrived + tile, 1, sem="acq_rel")
        if done == SPLITS - 1:  # the last to arrive merges, in the order of the splits
            total = tl.zeros((BM, BN), tl.float32)
            for part in range(SPLITS):
                total += tl.load(cell + part * (BM * BN), cache_modifier=".cg")
            _finish(
                total, m, n, bias, residual, alpha, inverse_beta, plain, curved, num_rows,
                rows_each, residual_stride, plain_stride, curved_stride, OUTPUTS, ACT,
                HAS_RESIDUAL, PLAIN, CURVED,
            )  # fmt: skip
            tl.store(arrived + tile, 0)


@triton.jit(do_not_specialize=["rows_each"])
def _mix_depthwise(
    held, weight, bias, carried, narrow_bias, out, rows_each, held_stride, eps,
    CHANNELS: tl.constexpr, BLOCK: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """Depthwise causal convolution, then layer norm without weights: one row a program.

    Also writes row + narrow_bias, the residual that the last product of the block adds to.
    """
    row = tl.program_id(0)
    stream = (row // rows_each).to(tl.int64)
    channel = tl.arange(0, BLOCK)
    inside = channel < CHANNELS
    at = held + stream * held_stride + (row % rows_each) * CHANNELS + channel
    total = tl.load(bias + channel, mask=inside, other=0.0).to(tl.float32)
    for tap in tl.static_range(TAPS):
        value = tl.load(at + tap * CHANNELS, mask=inside, other=0.0).to(tl.float32)
        total += value * tl.load(weight + tap * CHANNELS + channel, mask=inside, other=0.0)
    here = tl.load(at + (TAPS - 1) * CHANNELS, mask=inside, other=0.0).to(tl.float32)
    here += tl.load(narrow_bias + channel, mask=inside, other=0.0).to(tl.float32)
    into = row.to(tl.int64) * CHANNELS + channel
    tl.store(carried + into, here.to(carried.dtype.element_ty), mask=inside)
    total = tl.where(inside, total, 0.0)
    mean = tl.sum(total, 0) / CHANNELS
    centred = tl.where(inside, total - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / CHANNELS + eps)
    tl.store(out + into, (centred * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows", "rows_each"])
def _last_conv(
    held, weight, bias, samples, num_rows, rows_each, held_stride, CHANNELS: tl.constexpr,
    BLOCK: tl.constexpr, TAPS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """The one-channel convolution at the end, clamped: fp32 samples [R * T]."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    in_m = m < num_rows
    stream = (m // rows_each).to(tl.int64)
    channel = tl.arange(0, BLOCK)
    inside = in_m[:, None] & (channel < CHANNELS)[None, :]
    rows = held + (stream * held_stride + (m % rows_each) * CHANNELS)[:, None] + channel[None, :]
    total = tl.zeros((BM, BLOCK), tl.float32)
    for tap in tl.static_range(TAPS):
        value = tl.load(rows + tap * CHANNELS, mask=inside, other=0.0).to(tl.float32)
        gain = tl.load(weight + tap * CHANNELS + channel, mask=channel < CHANNELS, other=0.0)
        total += value * gain[None, :]
    sample = tl.sum(total, 1) + tl.load(bias)
    tl.store(samples + m, tl.minimum(tl.maximum(sample, -1.0), 1.0), mask=in_m)


@dataclass(frozen=True, slots=True)
class Rows:
    """New rows [R, T, C] inside a buffer that may hold each stream's past rows before them."""

    buffer: Tensor
    """[R, past + T, C]"""
    past: int

    @property
    def new(self) -> Tensor:
        """The new rows [R, T, C], a view."""
        return self.buffer[:, self.past :]

    @property
    def start(self) -> Tensor:
        """A view whose first value is the first new one: what a kernel writes to."""
        return self.buffer.view(-1)[self.past * self.buffer.shape[2] :]

    @property
    def stride(self) -> int:
        """Values from one stream to the next."""
        return self.buffer.stride(0)


@dataclass(frozen=True, slots=True)
class ConvWeight:
    """A causal convolution folded for the kernel."""

    matrix: Tensor
    """[taps * C, outputs], oldest tap first."""
    bias: Tensor
    """[outputs] fp32"""
    taps: int
    dilation: int

    @property
    def past(self) -> int:
        """Rows of history it reads."""
        return (self.taps - 1) * self.dilation


@dataclass(frozen=True, slots=True)
class Snake:
    """Snake parameters repeated to the outputs of the convolution before it, fp32."""

    alpha: Tensor
    inverse_beta: Tensor


@dataclass(frozen=True, slots=True)
class Tile:
    """Block shape of one convolution launch."""

    rows: int
    outputs: int
    depth: int
    num_warps: int
    num_stages: int
    splits: int = 1
    """Programs that share the reduction of a tile."""


SPLIT_PROGRAMS = 264
"""Most programs of a split launch: two on each multiprocessor of the largest device so far."""
SPLIT_TILE_VALUES = 4096
"""Largest tile of a split launch."""
_SPLIT_BELOW = 66
"""Launches of fewer programs leave most of the device idle, so their reduction is split."""
_MIN_STEPS = 4


class ConvScratch:
    """Where split programs leave their sums; shared by launches that run one after another."""

    def __init__(self, like: Tensor) -> None:
        """Reserve for any split launch."""
        self.partial = like.new_empty(SPLIT_PROGRAMS * SPLIT_TILE_VALUES, dtype=torch.float32)
        self.arrived = like.new_zeros(SPLIT_PROGRAMS, dtype=torch.int32)


_MANY_ROWS = 65536
_MASKED_TILE = Tile(128, 128, 32, 8, 4)
"""Of 96 outputs and 7 taps: a quarter of each row is masked, yet 261 us against 294 for exact
widths of 32 at 122,880 rows (H200); with one tap 140 against 92."""
_TALL_PROGRAMS = 96
"""Enough tiles of 128 rows to fill a device: 1,024 rows of [1024, 1536], 7 taps, take 49 us with
them and 66 with twice as many of 64. [1536, 6144], 2 taps: 77 us with four stages, 91 with three
or with 64 rows (H200)."""


def choose_splits(programs: int, steps: int) -> int:
    """Return how many programs share a tile's reduction of `steps` blocks."""
    fitting = [
        s for s in range(1, 17)
        if steps % s == 0 and steps // s >= _MIN_STEPS and programs * s <= SPLIT_PROGRAMS
    ]  # fmt: skip
    return max(fitting, default=1) if programs < _SPLIT_BELOW else 1


def choose_tile(num_rows: int, outputs: int, channels: int, taps: int, deep: bool = False) -> Tile:
    """Return the tile of a convolution; narrow outputs take exact widths, few rows small tiles.

    `deep`: 128 KiB of shared memory are there for one program.
    """
    if (
        num_rows >= _MANY_ROWS
        and outputs < 128
        and outputs % 64
        and taps > 1
        and channels % 32 == 0
    ):
        return _MASKED_TILE
    width = 128 if outputs % 128 == 0 else 64 if outputs % 64 == 0 else 32
    height = 128 if num_rows >= 2048 else 64 if num_rows >= 512 else 32 if num_rows >= 32 else 16
    if height == 64 and num_rows // 128 * (outputs // 128) >= _TALL_PROGRAMS:
        height = 128
    if height <= 32 and width == 128:
        width = 64
    depth = next((d for d in (64, 32, 16) if channels % d == 0), 16)
    splits = 1
    if height * width <= SPLIT_TILE_VALUES:
        programs = triton.cdiv(outputs, width) * triton.cdiv(num_rows, height)
        splits = choose_splits(programs, taps * triton.cdiv(channels, depth))
    large = height * width >= 16384
    stages = 4 if deep and large else 3
    return Tile(height, width, depth, 8 if large else 4, stages, splits)


def has_capability_9(tensor: Tensor) -> bool:
    """Return whether a tensor is on a device of capability 9.0 or later.

    There a program may hold 227 KiB of shared memory. Tensors without storage stand for those of
    such a device.
    """
    if tensor.device.type == "cuda":
        return torch.cuda.get_device_capability(tensor.device)[0] >= 9
    return tensor.device.type == "meta"


def causal_conv(
    held: Rows,
    weight: ConvWeight,
    plain: Rows | None = None,
    curved: Rows | None = None,
    snake: Snake | None = None,
    residual: Rows | None = None,
    act: int = NONE,
    tile: Tile | None = None,
    scratch: ConvScratch | None = None,
) -> None:
    """Write conv(held) + bias, activated, plus residual: plain to `plain`, snake'd to `curved`.

    `held` must hold weight.past past rows. Outputs may be buffers of r times as many rows of
    1 / r the width (a transposed convolution): the layout is the same. Without `scratch` no
    reduction is split.
    """
    assert held.past == weight.past and (curved is None) == (snake is None)
    streams, num, channels = held.new.shape
    outputs = weight.matrix.shape[1]
    spare = held
    r, p, c = residual or spare, plain or spare, curved or spare
    t = tile or choose_tile(
        streams * num, outputs, channels, weight.taps, has_capability_9(weight.matrix)
    )
    splits = 1 if scratch is None else t.splits
    partial, arrived = (scratch.partial, scratch.arrived) if scratch else (weight.bias, weight.bias)
    alpha, inverse_beta = (snake.alpha, snake.inverse_beta) if snake else (weight.bias, weight.bias)
    _conv[(triton.cdiv(outputs, t.outputs), triton.cdiv(streams * num, t.rows), splits)](
        held.buffer, weight.matrix, weight.bias, r.start, alpha, inverse_beta, p.start, c.start,
        partial, arrived,
        streams * num, num, held.stride, r.stride, p.stride, c.stride,
        channels, outputs, weight.taps, weight.dilation, act, residual is not None,
        plain is not None, curved is not None, t.rows, t.outputs, t.depth, splits,
        num_warps=t.num_warps, num_stages=t.num_stages,
    )  # fmt: skip


def mix_depthwise(
    held: Rows, weight: Tensor, bias: Tensor, narrow_bias: Tensor, carried: Rows, out: Rows,
    eps: float,
) -> None:  # fmt: skip
    """Write norm(depthwise conv) to `out`, row + narrow_bias to `carried`; weight [taps, C]."""
    streams, num, channels = held.new.shape
    assert carried.past == 0 and out.past == 0 and held.past == weight.shape[0] - 1
    _mix_depthwise[(streams * num,)](
        held.buffer, weight, bias, carried.buffer, narrow_bias, out.buffer, num, held.stride, eps,
        channels, triton.next_power_of_2(channels), weight.shape[0], num_warps=4,
    )  # fmt: skip


def last_conv(held: Rows, weight: Tensor, bias: Tensor, samples: Tensor) -> None:
    """Write the clamped one-channel convolution, weight [taps, C] fp32, to samples [R, T] fp32."""
    streams, num, channels = held.new.shape
    assert held.past == weight.shape[0] - 1
    _last_conv[(triton.cdiv(streams * num, 32),)](
        held.buffer, weight, bias, samples, streams * num, num, held.stride, channels,
        triton.next_power_of_2(channels), weight.shape[0], 32, num_warps=4,
    )  # fmt: skip

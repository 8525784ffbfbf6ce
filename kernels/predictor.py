# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""The whole code predictor as one launch: one program a multiprocessor, barriers between phases.

    16 positions x (5 layers x (qkv, attend, out, gate and up, down), head, choose)

A graph of small kernels spends most of its time starting them: 160 MB of weights a position take
40 us, 27 launches another 100. Here the programs stay, and while one waits at a barrier it asks
the second-level cache for its share of the next weights. Split sums are added in a fixed order,
so results do not depend on timing. Oracle: the same body as separate launches (cuda_frame.py).
All programs must be resident at once: the grid is never larger than the multiprocessor count, and
whatever holds multiprocessors beside it must end by itself.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from playhead.kernels.attention import attend_stream
from playhead.kernels.sampler import choose_row

PATIENCE = 4_000_000
"""Looks at the barrier a program takes in all before it gives up, seconds: a launch whose programs
are not all resident ends with void codes instead of never."""
POSITIONS = 16
"""Two inputs, then one code each: position p >= 1 scores codebook p."""


@triton.jit
def _barrier(counter, epoch, patience, NUM: tl.constexpr):
    """Wait until all programs came: their writes are visible then.

    Returns the next epoch and the looks that are left; without any, no barrier waits again.
    """
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release")
    while (tl.atomic_add(counter, 0, sem="acquire") < epoch * NUM) & (patience > 0):
        patience -= 1
    tl.debug_barrier()
    return epoch + 1, patience


@triton.jit
def _prefetch(block, ROWS: tl.constexpr, PITCH: tl.constexpr, VALUES: tl.constexpr):
    """Ask the second-level cache for `VALUES` two-byte values of each of ROWS rows."""
    LINE: tl.constexpr = 64
    row = tl.arange(0, ROWS)[:, None] * PITCH
    at = block + row + tl.arange(0, VALUES // LINE)[None, :] * LINE
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32,
        is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def _dot_tile(
    x, pitch, weight, m, in_m, n, first, K: tl.constexpr, PER: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Return x[m, first : first + PER] @ weight[n, first : first + PER].T in fp32 [BM, BN]."""
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(PER // BK):
        k = first + step * BK + tl.arange(0, BK)
        b = tl.load(weight + n[:, None] * K + k[None, :])
        a = tl.load(
            x + m[:, None] * pitch + k[None, :], mask=in_m[:, None], other=0.0,
            cache_modifier=".cg",
        )  # fmt: skip
        total = tl.dot(a, tl.trans(b), total, input_precision="ieee")
    return total


@triton.jit
def _plain_product(
    pid, x, pitch, weight, out, m, in_m, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, NUM: tl.constexpr,
):  # fmt: skip
    """out [B, N] = x @ weight.T, a tile of BN outputs a program."""
    for tile in range(pid, N // BN, NUM):
        n = tile * BN + tl.arange(0, BN)
        total = _dot_tile(x, pitch, weight, m, in_m, n, 0, K, K, BM, BN, BK)
        tl.store(
            out + m[:, None] * N + n[None, :], total.to(out.dtype.element_ty), mask=in_m[:, None]
        )


@triton.jit
def _split_product(
    pid, x, weight, residual, residual_pitch, out, out_pitch, partial, arrived, m, in_m,
    N: tl.constexpr, K: tl.constexpr, SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, NUM: tl.constexpr,
):  # fmt: skip
    """out [B, N] = x @ weight.T + residual, K cut into SPLITS; the last to arrive adds up."""
    PER: tl.constexpr = K // SPLITS
    spot = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    for item in range(pid, (N // BN) * SPLITS, NUM):
        tile = item // SPLITS
        split = item % SPLITS
        n = tile * BN + tl.arange(0, BN)
        total = _dot_tile(x, K, weight, m, in_m, n, split * PER, K, PER, BM, BN, BK)
        tl.store(partial + item * (BM * BN) + spot, total)
        tl.debug_barrier()
        done = tl.atomic_add(arrived + tile, 1, sem="acq_rel")
        if done == SPLITS - 1:
            total = tl.zeros((BM, BN), tl.float32)
            for part in range(SPLITS):
                theirs = partial + (tile * SPLITS + part) * (BM * BN)
                total += tl.load(theirs + spot, cache_modifier=".cg")
            at = residual + m[:, None] * residual_pitch + n[None, :]
            held = tl.load(at, mask=in_m[:, None], other=0.0, cache_modifier=".cg")
            total += held.to(tl.float32)
            tl.store(
                out + m[:, None] * out_pitch + n[None, :], total.to(out.dtype.element_ty),
                mask=in_m[:, None],
            )  # fmt: skip
            tl.store(arrived + tile, 0)


@triton.jit
def _row_scales(y, m, in_m, eps, H: tl.constexpr, BM: tl.constexpr):
    """Return the norm scales [BM] of rows y [B, H]."""
    CHUNK: tl.constexpr = 128 if H % 128 == 0 else 16
    total = tl.zeros((BM,), tl.float32)
    for first in range(0, H, CHUNK):
        at = y + m[:, None] * H + (first + tl.arange(0, CHUNK))[None, :]
        value = tl.load(at, mask=in_m[:, None], other=0.0, cache_modifier=".cg").to(tl.float32)
        total += tl.sum(value * value, 1)
    return tl.rsqrt(total / H + eps)


@triton.jit
def _gated_product(
    pid, y, weight, out, m, in_m, eps, H: tl.constexpr, WIDE: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, NUM: tl.constexpr,
):  # fmt: skip
    """out [B, WIDE] = silu(gate) * up of y @ weight.T, both scaled by the norm of y."""
    scale = _row_scales(y, m, in_m, eps, H, BM)[:, None]
    for tile in range(pid, WIDE // BN, NUM):
        n = tile * BN + tl.arange(0, BN)
        gate = _dot_tile(y, H, weight, m, in_m, n, 0, H, H, BM, BN, BK) * scale
        up = _dot_tile(y, H, weight + WIDE * H, m, in_m, n, 0, H, H, BM, BN, BK) * scale
        value = gate * tl.sigmoid(gate) * up
        tl.store(
            out + m[:, None] * WIDE + n[None, :], value.to(out.dtype.element_ty),
            mask=in_m[:, None],
        )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _predict(
    inputs, y, qkv, mixed, gated, logits, cache, partial, arrived, counter, qkv_w, out_w, gate_w,
    down_w, q_norms, k_norms, rope, heads, tables, slots, flags, reals, wholes, seen, codes, rows,
    capacity, eps, scale, LAYERS: tl.constexpr, H: tl.constexpr, HQ: tl.constexpr,
    HKV: tl.constexpr, HALF: tl.constexpr, WIDE: tl.constexpr, CODES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HEAD_BN: tl.constexpr,
    OUT_SPLITS: tl.constexpr, DOWN_SPLITS: tl.constexpr, NUM: tl.constexpr,
    HALF_WORDS: tl.constexpr, PREFETCH: tl.constexpr, BOOKS: tl.constexpr, H_BLOCK: tl.constexpr,
    CODES_BLOCK: tl.constexpr, DOWN_AHEAD: tl.constexpr, PATIENCE: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    D: tl.constexpr = 2 * HALF
    QKV: tl.constexpr = (HQ + 2 * HKV) * D
    MIXED: tl.constexpr = HQ * D
    PITCH: tl.constexpr = 3 * H
    m = tl.arange(0, BM)
    in_m = m < rows
    zero = tl.full((), 0, tl.int64)
    epoch = 1
    patience = PATIENCE
    for position in range(BOOKS):
        for layer in range(LAYERS):
            deep = zero + layer
            which = tl.where((deep == 0) & (zero + position < 2), zero + position, 2)
            x = inputs + which * H
            _plain_product(
                pid, x, PITCH, qkv_w + deep * (QKV * H), qkv, m, in_m, QKV, H, BM, BN, BK, NUM
            )
            epoch, patience = _barrier(counter, epoch, patience, NUM)
            for item in range(pid, rows * HKV, NUM):
                stream = zero + item // HKV
                attend_stream(
                    stream, item % HKV, qkv, inputs, stream * 3 + which,
                    cache + deep * capacity * (2 * HKV * BOOKS * D), q_norms + layer * D,
                    k_norms + layer * D, rope, mixed, position, eps, scale, HQ, HKV, HALF, BOOKS,
                    1, H, H_BLOCK,
                )  # fmt: skip
            if PREFETCH and pid < (H // BN) * OUT_SPLITS:
                mine = out_w + deep * (H * MIXED) + (pid // OUT_SPLITS) * BN * MIXED
                mine += (pid % OUT_SPLITS) * (MIXED // OUT_SPLITS)
                _prefetch(mine, BN, MIXED, MIXED // OUT_SPLITS)
            epoch, patience = _barrier(counter, epoch, patience, NUM)
            _split_product(
                pid, mixed, out_w + deep * (H * MIXED), x, PITCH, y, H, partial, arrived, m, in_m,
                H, MIXED, OUT_SPLITS, BM, BN, BK, NUM,
            )  # fmt: skip
            if PREFETCH and pid < WIDE // BN:
                mine = gate_w + deep * (2 * WIDE * H) + pid * BN * H
                _prefetch(mine, BN, H, H)
                _prefetch(mine + WIDE * H, BN, H, H)
            epoch, patience = _barrier(counter, epoch, patience, NUM)
            _gated_product(
                pid, y, gate_w + deep * (2 * WIDE * H), gated, m, in_m, eps, H, WIDE, BM, BN, BK,
                NUM,
            )  # fmt: skip
            if PREFETCH and pid < (H // BN) * DOWN_SPLITS:
                mine = down_w + deep * (H * WIDE) + (pid // DOWN_SPLITS) * BN * WIDE
                mine += (pid % DOWN_SPLITS) * (WIDE // DOWN_SPLITS)
                _prefetch(mine, BN, WIDE, DOWN_AHEAD)
            epoch, patience = _barrier(counter, epoch, patience, NUM)
            _split_product(
                pid, gated, down_w + deep * (H * WIDE), y, H, inputs + 2 * H, PITCH, partial,
                arrived, m, in_m, H, WIDE, DOWN_SPLITS, BM, BN, BK, NUM,
            )  # fmt: skip
            if PREFETCH and (layer + 1 < LAYERS) & (pid < QKV // BN):
                _prefetch(qkv_w + (deep + 1) * (QKV * H) + pid * BN * H, BN, H, H)
            epoch, patience = _barrier(counter, epoch, patience, NUM)
        if position > 0:
            book = zero + position - 1
            _plain_product(
                pid, inputs + 2 * H, PITCH, heads + book * (CODES * H), logits, m, in_m, CODES, H,
                BM, HEAD_BN, BK, NUM,
            )  # fmt: skip
            if PREFETCH and pid < QKV // BN:
                _prefetch(qkv_w + pid * BN * H, BN, H, H)
            epoch, patience = _barrier(counter, epoch, patience, NUM)
            table = tables + tl.minimum(book + 1, BOOKS - 2) * (CODES * H)
            for row in range(pid, rows, NUM):
                choose_row(
                    zero + row, logits, inputs + 2 * H, slots, flags, reals, wholes, seen,
                    codes, table, inputs + 2 * H, zero + position, CODES, PITCH, PITCH, eps, CODES,
                    CODES_BLOCK, False, HALF_WORDS, 0, H, H_BLOCK, BOOKS, True, H, H_BLOCK,
                )  # fmt: skip
            epoch, patience = _barrier(counter, epoch, patience, NUM)
    if patience <= 0:
        tl.store(counter + 1, 1)


@dataclass(frozen=True, slots=True)
class PredictorWeights:
    """The predictor's weights, layers and codebooks stacked."""

    qkv: Tensor
    """[L, (HQ + 2 HKV) D, H], norms folded."""
    out: Tensor
    """[L, H, HQ D]"""
    gate_up: Tensor
    """[L, 2 I, H], norms folded."""
    down: Tensor
    """[L, H, I]"""
    q_norms: Tensor
    """[L, D]"""
    k_norms: Tensor
    rope: Tensor
    """[positions, D]: cos, then sin."""
    heads: Tensor
    """[15, codes, H], norms folded."""
    inputs: Tensor
    """[15, codes, H]: the input rows of codebooks 0..14."""


@dataclass(frozen=True, slots=True)
class PredictorPlan:
    """How the work is cut."""

    programs: int
    outputs: int = 32
    depth: int = 128
    head_outputs: int = 16
    out_splits: int = 4
    down_splits: int = 4
    num_warps: int = 4
    num_stages: int = 4
    prefetch: bool = True
    cooperative: bool = False
    """The device starts the programs only when it has room for all of them at once."""


class PredictorScratch:
    """What the phases hand to each other, for up to `rows` rows."""

    def __init__(self, weights: PredictorWeights, rows: int) -> None:
        """Allocate once; launches that share it run one after another."""
        like, hidden = weights.qkv, weights.out.shape[1]
        self.inputs = like.new_zeros(rows, 3, hidden)
        """[B, 3, H]: the projected talker state, the row of code 0, then the running x."""
        self.y = like.new_zeros(rows, hidden)
        self.qkv = like.new_zeros(rows, weights.qkv.shape[1])
        self.mixed = like.new_zeros(rows, weights.out.shape[2])
        self.gated = like.new_zeros(rows, weights.down.shape[2])
        self.logits = like.new_zeros(rows, weights.heads.shape[1])
        self.partial = torch.zeros(8 * max(rows, 16) * hidden, device=like.device)
        self.arrived = torch.zeros(hidden // 8, dtype=torch.int32, device=like.device)
        self.counter = torch.zeros(2, dtype=torch.int32, device=like.device)
        """Arrivals at barriers, and whether a program gave up waiting: the codes are void then."""


def predict_codes(
    weights: PredictorWeights,
    scratch: PredictorScratch,
    cache: Tensor,
    slots: Tensor,
    flags: Tensor,
    reals: Tensor,
    wholes: Tensor,
    seen: Tensor,
    codes: Tensor,
    eps: float,
    plan: PredictorPlan,
) -> None:
    """Choose codebooks 1..15 of each row of `codes` [B, 17] from `scratch.inputs[:B, :2]`.

    `cache` [L, capacity, 2, HKV, 16, D] is scratch; `slots`, `reals`, `wholes` and `flags` are
    those of sampler.choose_codes. B is at most 64.
    """
    rows, books = codes.shape[0], codes.shape[1] - 1
    layers, capacity, _, kv_heads, _, dim = cache.shape
    hidden, wide, num_codes = weights.out.shape[1], weights.down.shape[2], weights.heads.shape[1]
    height = 16 if rows <= 16 else 32 if rows <= 32 else 64
    assert rows <= 64 and rows <= capacity and books == POSITIONS
    assert hidden % plan.outputs == wide % plan.outputs == num_codes % plan.head_outputs == 0
    assert plan.out_splits * height * hidden <= scratch.partial.numel()
    assert plan.down_splits * height * hidden <= scratch.partial.numel()
    scratch.counter.zero_()
    _predict[(plan.programs,)](
        scratch.inputs, scratch.y, scratch.qkv, scratch.mixed, scratch.gated, scratch.logits, cache,
        scratch.partial, scratch.arrived, scratch.counter, weights.qkv, weights.out,
        weights.gate_up, weights.down, weights.q_norms, weights.k_norms, weights.rope,
        weights.heads, weights.inputs, slots, flags, reals, wholes, seen, codes, rows, capacity,
        eps, dim**-0.5, layers, hidden, weights.out.shape[2] // dim, kv_heads, dim // 2, wide,
        num_codes, height, plan.outputs, plan.depth, plan.head_outputs, plan.out_splits,
        plan.down_splits, plan.programs, weights.qkv.dtype == torch.bfloat16, plan.prefetch, books,
        triton.next_power_of_2(hidden), triton.next_power_of_2(num_codes),
        triton.next_power_of_2(wide // plan.down_splits + 1) // 2, PATIENCE,
        num_warps=plan.num_warps, num_stages=plan.num_stages,
        **({"launch_cooperative_grid": True} if plan.cooperative else {}),
    )  # fmt: skip

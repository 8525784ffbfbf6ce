# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""Attention of the talker over paged keys and values, and of the predictor over its 16 positions.

A layer's cache is [pages, 2 (keys, values), kv heads, 16 positions, D]; a slot's pages stand in
its page table, page 0 is scratch. Head norm, rotary and the write of the new position happen in
the same launch. With folded norms q and k need only a corrected eps (they are normalised again
per head); v takes the row scale. Twins: twins_frame.py.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from playhead.kernels.norm import row_mean_square

PAGE = 16
"""Positions of one page."""
SPLIT = 256
"""Positions one program walks; longer contexts are split and merged by the last program."""


@triton.jit
def _normed_halves(base, norm, mask, half, eps, HALF: tl.constexpr):
    """Load [.., 2 * HALF] at pointers `base`, norm over both halves, return the halves in fp32."""
    low = tl.load(base + half, mask=mask, other=0.0).to(tl.float32)
    high = tl.load(base + HALF + half, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(low * low, 1) + tl.sum(high * high, 1)
    scale = tl.rsqrt(total / (2 * HALF) + eps)[:, None]
    weight_low = tl.load(norm + half).to(tl.float32)
    weight_high = tl.load(norm + HALF + half).to(tl.float32)
    return low * scale * weight_low, high * scale * weight_high


@triton.jit
def _rotate(low, high, cos, sin):
    return low * cos - high * sin, high * cos + low * sin


@triton.jit
def _new_row(
    qkv, x, row, head, position, k_norm, rope, eps, HQ: tl.constexpr, HKV: tl.constexpr,
    HALF: tl.constexpr, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the rotated key halves [1, HALF], value [1, 2 * HALF] and q/k eps of one row."""
    D: tl.constexpr = 2 * HALF
    half = tl.arange(0, HALF)[None, :]
    full = tl.arange(0, D)[None, :]
    scale = 1.0
    head_eps = eps
    if WIDTH > 0:
        mean_square = row_mean_square(x, row, WIDTH, WIDTH_BLOCK) + eps
        scale = tl.rsqrt(mean_square)
        head_eps = eps * mean_square
    cos = tl.load(rope + position * D + half)
    sin = tl.load(rope + position * D + HALF + half)
    one = tl.full((1, 1), 1, tl.int1)
    base = qkv + row * (HQ + 2 * HKV) * D
    low, high = _normed_halves(base + (HQ + head) * D, k_norm, one, half, head_eps, HALF)
    key_low, key_high = _rotate(low, high, cos, sin)
    value = tl.load(base + (HQ + HKV + head) * D + full).to(tl.float32) * scale
    return key_low, key_high, value, head_eps


@triton.jit(do_not_specialize=["pages_per_slot"])
def _write_kv(
    qkv, x, cache, page_table, slots, positions, k_norm, rope, pages_per_slot, eps,
    HQ: tl.constexpr, HKV: tl.constexpr, HALF: tl.constexpr, PAGE: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the key and value of one (row, kv head) to its page: prompts, many rows a slot."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    D: tl.constexpr = 2 * HALF
    half = tl.arange(0, HALF)[None, :]
    full = tl.arange(0, D)[None, :]
    position = tl.load(positions + row)
    key_low, key_high, value, _ = _new_row(
        qkv, x, row, head, position, k_norm, rope, eps, HQ, HKV, HALF, WIDTH, WIDTH_BLOCK
    )
    page = tl.load(page_table + tl.load(slots + row) * pages_per_slot + position // PAGE)
    at = cache + ((page.to(tl.int64) * 2 * HKV + head) * PAGE + position % PAGE) * D
    tl.store(at + half, key_low.to(cache.dtype.element_ty))
    tl.store(at + HALF + half, key_high.to(cache.dtype.element_ty))
    tl.store(at + HKV * PAGE * D + full, value.to(cache.dtype.element_ty))


@triton.jit
def _walk(
    low, high, cache, slot_pages, head, first, last, scale,
    HKV: tl.constexpr, HALF: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return best score, weight and mix of the queries over positions first..last - 1."""
    D: tl.constexpr = 2 * HALF
    QUERIES: tl.constexpr = low.shape[0]
    element = cache.dtype.element_ty
    half = tl.arange(0, HALF)[None, :]
    full = tl.arange(0, D)[None, :]
    best = tl.full((QUERIES,), -1e30, tl.float32)
    weight = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, D), tl.float32)
    for start in range(first, last, BLOCK):
        key = start + tl.arange(0, BLOCK)
        held = (key < last)[:, None]
        page = tl.load(slot_pages + key // PAGE, mask=key < last, other=0).to(tl.int64)
        at = cache + (((page * 2 * HKV + head) * PAGE + key % PAGE) * D)[:, None]
        keys_low = tl.load(at + half, mask=held, other=0.0)
        keys_high = tl.load(at + HALF + half, mask=held, other=0.0)
        values = tl.load(at + HKV * PAGE * D + full, mask=held, other=0.0)
        score = tl.dot(low, tl.trans(keys_low), input_precision="ieee")
        score = tl.dot(high, tl.trans(keys_high), score, input_precision="ieee") * scale
        score = tl.where((key < last)[None, :], score, -1e30)
        better = tl.maximum(best, tl.max(score, 1))
        shrink = tl.exp(best - better)
        share = tl.exp(score - better[:, None])
        weight = weight * shrink + tl.sum(share, 1)
        mixed = mixed * shrink[:, None]
        mixed = tl.dot(share.to(element), values, mixed, input_precision="ieee")
        best = better
    return best, weight, mixed


@triton.jit
def _merge(
    partial, stats, cell, num_parts, G: tl.constexpr, D: tl.constexpr, QUERIES: tl.constexpr
):
    """Return weight and mix of all parts, added in the order of the splits."""
    query = tl.arange(0, QUERIES)
    spot = query[:, None] * D + tl.arange(0, D)[None, :]
    best = tl.full((QUERIES,), -1e30, tl.float32)
    weight = tl.zeros((QUERIES,), tl.float32)
    mixed = tl.zeros((QUERIES, D), tl.float32)
    for part in range(num_parts):
        told = stats + (cell + part) * 2 * G + query
        its_best = tl.load(told, query < G, -1e30, cache_modifier=".cg")
        its_weight = tl.load(told + G, query < G, 1.0, cache_modifier=".cg")
        there = partial + (cell + part) * G * D + spot
        its_mixed = tl.load(there, query[:, None] < G, 0.0, cache_modifier=".cg")
        better = tl.maximum(best, its_best)
        old = tl.exp(best - better)
        new = tl.exp(its_best - better)
        weight = weight * old + its_weight * new
        mixed = mixed * old[:, None] + its_mixed * new[:, None]
        best = better
    return weight, mixed


@triton.jit(do_not_specialize=["pages_per_slot"])
def _paged_attention(
    qkv, x, cache, page_table, slots, positions, q_norm, k_norm, rope, out, partial, stats, arrived,
    pages_per_slot, eps, scale,
    HQ: tl.constexpr, HKV: tl.constexpr, HALF: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, SPLIT: tl.constexpr, NUM_SPLITS: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, APPEND: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    D: tl.constexpr = 2 * HALF
    G: tl.constexpr = HQ // HKV
    QUERIES: tl.constexpr = 16  # the smallest tile of a matrix instruction; G of them are real
    position = tl.load(positions + row)
    first = split * SPLIT
    if first <= position:
        half = tl.arange(0, HALF)[None, :]
        full = tl.arange(0, D)[None, :]
        query = tl.arange(0, QUERIES)
        key_low, key_high, new_value, head_eps = _new_row(
            qkv, x, row, head, position, k_norm, rope, eps, HQ, HKV, HALF, WIDTH, WIDTH_BLOCK
        )
        element = cache.dtype.element_ty
        slot_pages = page_table + tl.load(slots + row) * pages_per_slot
        last = tl.minimum(first + SPLIT, position + 1)
        if APPEND:  # noqa: SIM102 (decided when compiling)
            if last == position + 1:
                page = tl.load(slot_pages + position // PAGE).to(tl.int64)
                at = cache + ((page * 2 * HKV + head) * PAGE + position % PAGE) * D
                tl.store(at + half, key_low.to(element))
                tl.store(at + HALF + half, key_high.to(element))
                tl.store(at + HKV * PAGE * D + full, new_value.to(element))
                # Read back below with the other positions: this program alone uses the new one.
                tl.debug_barrier()
        real = query[:, None] < G
        queries = qkv + row * (HQ + 2 * HKV) * D + (head * G + query[:, None]) * D
        low, high = _normed_halves(queries, q_norm, real, half, head_eps, HALF)
        cos = tl.load(rope + position * D + half)
        sin = tl.load(rope + position * D + HALF + half)
        low, high = _rotate(low, high, cos, sin)
        best, weight, mixed = _walk(
            low.to(element), high.to(element), cache, slot_pages, head, first, last, scale,
            HKV, HALF, PAGE, BLOCK,
        )  # fmt: skip
        num_active = tl.minimum(position // SPLIT + 1, NUM_SPLITS)
        result = out + row * HQ * D + (head * G + query[:, None]) * D + full
        if num_active == 1:
            tl.store(result, (mixed / weight[:, None]).to(out.dtype.element_ty), mask=real)
        else:
            cell = (row * HKV + head) * NUM_SPLITS
            there = partial + (cell + split) * G * D + query[:, None] * D + full
            tl.store(there, mixed, mask=real)
            tl.store(stats + (cell + split) * 2 * G + query, best, mask=query < G)
            tl.store(stats + (cell + split) * 2 * G + G + query, weight, mask=query < G)
            tl.debug_barrier()
            done = tl.atomic_add(arrived + row * HKV + head, 1, sem="acq_rel")
            if done == num_active - 1:  # the last to arrive merges
                weight, mixed = _merge(partial, stats, cell, num_active, G, D, QUERIES)
                tl.store(result, (mixed / weight[:, None]).to(out.dtype.element_ty), mask=real)
                tl.store(arrived + row * HKV + head, 0)


@triton.jit(do_not_specialize=["position"])
def _predictor_attention(
    qkv, x, cache, q_norm, k_norm, rope, out, position, eps, scale,
    HQ: tl.constexpr, HKV: tl.constexpr, HALF: tl.constexpr, LENGTH: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """Attend with ROWS new rows of one stream at `position` and after, for one kv head."""
    stream = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    D: tl.constexpr = 2 * HALF
    G: tl.constexpr = HQ // HKV
    QUERIES: tl.constexpr = 16
    element = cache.dtype.element_ty
    half = tl.arange(0, HALF)[None, :]
    full = tl.arange(0, D)[None, :]
    key = tl.arange(0, LENGTH)
    query = tl.arange(0, QUERIES)
    of_row = query // G  # query q is head q % G of new row q // G
    key_scale = tl.full((LENGTH,), 1.0, tl.float32)
    key_eps = tl.full((LENGTH,), 0.0, tl.float32) + eps
    query_eps = tl.full((QUERIES,), 0.0, tl.float32) + eps
    if WIDTH > 0:
        for r in tl.static_range(ROWS):
            mean_square = row_mean_square(x, stream * ROWS + r, WIDTH, WIDTH_BLOCK) + eps
            key_scale = tl.where(key == position + r, tl.rsqrt(mean_square), key_scale)
            key_eps = tl.where(key == position + r, eps * mean_square, key_eps)
            query_eps = tl.where(of_row == r, eps * mean_square, query_eps)
    new = ((key >= position) & (key < position + ROWS))[:, None]
    held = (key < position)[:, None]
    rows = qkv + ((stream * ROWS + key - position) * (HQ + 2 * HKV) * D)[:, None]
    low, high = _normed_halves(rows + (HQ + head) * D, k_norm, new, half, key_eps, HALF)
    cos = tl.load(rope + key[:, None] * D + half)
    sin = tl.load(rope + key[:, None] * D + HALF + half)
    low, high = _rotate(low, high, cos, sin)
    value = tl.load(rows + (HQ + HKV + head) * D + full, mask=new, other=0.0).to(tl.float32)
    value = value * key_scale[:, None]
    at = cache + ((stream * 2 * HKV + head) * LENGTH + key[:, None]) * D
    tl.store(at + half, low.to(element), mask=new)
    tl.store(at + HALF + half, high.to(element), mask=new)
    tl.store(at + HKV * LENGTH * D + full, value.to(element), mask=new)
    keys_low = tl.where(new, low.to(element), tl.load(at + half, mask=held, other=0.0))
    keys_high = tl.where(new, high.to(element), tl.load(at + HALF + half, mask=held, other=0.0))
    past = tl.load(at + HKV * LENGTH * D + full, mask=held, other=0.0)
    values = tl.where(new, value.to(element), past)
    real = (query < G * ROWS)[:, None]
    asked = (
        qkv + ((stream * ROWS + of_row) * (HQ + 2 * HKV) * D + (head * G + query % G) * D)[:, None]
    )
    low, high = _normed_halves(asked, q_norm, real, half, query_eps, HALF)
    spot = tl.minimum(position + of_row, LENGTH - 1)[:, None]
    low, high = _rotate(
        low, high, tl.load(rope + spot * D + half), tl.load(rope + spot * D + HALF + half)
    )
    score = tl.dot(low.to(element), tl.trans(keys_low), input_precision="ieee")
    score = tl.dot(high.to(element), tl.trans(keys_high), score, input_precision="ieee") * scale
    score = tl.where(key[None, :] <= position + of_row[:, None], score, -1e30)
    share = tl.exp(score - tl.max(score, 1)[:, None])
    share = share / tl.sum(share, 1)[:, None]
    mixed = tl.dot(share.to(element), values, input_precision="ieee")
    result = out + ((stream * ROWS + of_row) * HQ * D + (head * G + query % G) * D)[:, None] + full
    tl.store(result, mixed.to(out.dtype.element_ty), mask=real)


class SplitScratch:
    """Where split programs leave their parts; one per graph size, zeroed once."""

    def __init__(self, rows: int, heads: int, kv_heads: int, dim: int, splits: int, like: Tensor):
        """Reserve for `rows` rows and contexts of up to `splits` * SPLIT positions."""
        group = heads // kv_heads
        self.num_splits = splits
        cells = rows * kv_heads * splits * group
        self.partial = like.new_empty(cells * dim, dtype=torch.float32)
        self.stats = like.new_empty(cells * 2, dtype=torch.float32)
        self.arrived = torch.zeros(rows * kv_heads, dtype=torch.int32, device=like.device)


def paged_attention(
    qkv: Tensor,
    cache: Tensor,
    page_table: Tensor,
    slots: Tensor,
    positions: Tensor,
    norms: tuple[Tensor, Tensor],
    rope: Tensor,
    out: Tensor,
    scratch: SplitScratch,
    eps: float,
    source: Tensor | None = None,
    append: bool = True,
    block: int | None = None,
) -> None:
    """Attend with one new row per entry: qkv [N, (HQ + 2 HKV) * D] -> out [N, HQ * D].

    Row i belongs to `slots[i]` int32 at `positions[i]` int32 and sees positions 0..itself. With
    `append` its key and value are written by this launch (one row a slot); without, `write_kv`
    has written them. `rope` [positions, D] fp32 holds cos, then sin. `source`: see norm.gate_rows.
    `block`: positions a step.
    """
    rows, kv_heads, dim = qkv.shape[0], cache.shape[2], cache.shape[4]
    heads = out.shape[1] // dim
    # H200, a launch: 5.7 us by 64 and 6.9 by 32 at 8 rows and context 63 (13.9, 17.7 at 511);
    # 32.5 and 30.1 at 256 rows. Eight warps gain only at 8 rows and a context of 511.
    block = block or (32 if rows >= 128 else 64)
    width = 0 if source is None else source.shape[1]
    _paged_attention[(rows, kv_heads, scratch.num_splits)](
        qkv, qkv if source is None else source, cache, page_table, slots, positions, *norms, rope,
        out, scratch.partial, scratch.stats, scratch.arrived, page_table.shape[1], eps, dim**-0.5,
        heads, kv_heads, dim // 2, PAGE, block, SPLIT, scratch.num_splits,
        width, triton.next_power_of_2(max(width, 1)), append, num_warps=4, num_stages=2,
    )  # fmt: skip


def write_kv(
    qkv: Tensor,
    cache: Tensor,
    page_table: Tensor,
    slots: Tensor,
    positions: Tensor,
    k_norm: Tensor,
    rope: Tensor,
    num_heads: int,
    eps: float,
    source: Tensor | None = None,
) -> None:
    """Write keys (normed, rotated) and values of rows into the pages of their slots."""
    kv_heads, dim = cache.shape[2], cache.shape[4]
    width = 0 if source is None else source.shape[1]
    _write_kv[(qkv.shape[0], kv_heads)](
        qkv, qkv if source is None else source, cache, page_table, slots, positions, k_norm, rope,
        page_table.shape[1], eps, num_heads, kv_heads, dim // 2, PAGE,
        width, triton.next_power_of_2(max(width, 1)), num_warps=2,
    )  # fmt: skip


def predictor_attention(
    qkv: Tensor,
    cache: Tensor,
    norms: tuple[Tensor, Tensor],
    rope: Tensor,
    out: Tensor,
    position: int,
    new_rows: int,
    eps: float,
    source: Tensor | None = None,
) -> None:
    """Attend with `new_rows` rows a stream at `position`: qkv [B * new_rows, ...] -> out.

    `cache` [B, 2, kv heads, 16, D] takes the new keys and values.
    """
    batch, _, kv_heads, length, dim = cache.shape
    heads = out.shape[1] // dim
    width = 0 if source is None else source.shape[1]
    _predictor_attention[(batch, kv_heads)](
        qkv, qkv if source is None else source, cache, *norms, rope, out, position, eps,
        dim**-0.5, heads, kv_heads, dim // 2, length, new_rows,
        width, triton.next_power_of_2(max(width, 1)), num_warps=2,
    )  # fmt: skip

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""The codec's per-stream state on the device: convolution pasts, the KV ring, code look-up.

All pasts of a slot are one row of [slots, values]; a table of blocks says where each piece goes
in the held buffers of a batch, so one launch loads every past and one stores it back in place.
The ring keeps keys before rotary: scores depend on distances only, so no absolute position is
needed and streams may run for ever. Twins: twins_codec.py.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from playhead.kernels.norm import row_mean_square

COPY_BLOCK = 1024
"""Values one program of the past copy moves."""


@triton.jit(do_not_specialize=["frames_each"])
def _look_up(codes, tables, out, frames_each, out_stride, num_codes, WIDTH: tl.constexpr,
             BLOCK: tl.constexpr, BOOKS: tl.constexpr):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    total = tl.zeros((BLOCK,), tl.float32)
    for book in tl.static_range(BOOKS):
        code = tl.load(codes + row * BOOKS + book) + book * num_codes
        at = tables + code.to(tl.int64) * WIDTH + column
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    at = out + row // frames_each * out_stride + row % frames_each * WIDTH + column
    tl.store(at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _move_pasts(
    state, arena, blocks, slots, codec_frames, state_stride, STORE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Move one block of one stream's pasts; blocks int64 [n, 4]: state offset, arena offset of
    the past of stream 0, values from stream to stream, values to move; 5th column: where the
    newest rows begin."""
    row = tl.program_id(1)
    told = blocks + tl.program_id(0) * 5
    slot = tl.load(slots + row).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < tl.load(told + 3)
    kept = state + slot * state_stride + tl.load(told) + at
    past = arena + tl.load(told + 1) + row * tl.load(told + 2) + at
    if STORE:
        newest = past + tl.load(told + 4)
        tl.store(kept, tl.load(newest, mask=inside), mask=inside)
    else:
        begun = tl.load(codec_frames + slot) > 0
        tl.store(past, tl.load(kept, mask=inside & begun, other=0.0), mask=inside)


@triton.jit
def _scales(
    x, stream, frames_each, eps, WINDOW: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """Return norm scales of the new rows by key and by query (the weight is folded)."""
    key = tl.arange(0, KEYS)
    query = tl.arange(0, QUERIES)
    by_key = tl.full((KEYS,), 1.0, tl.float32)
    by_query = tl.full((QUERIES,), 1.0, tl.float32)
    for i in range(frames_each):
        scale = tl.rsqrt(row_mean_square(x, stream * frames_each + i, WIDTH, WIDTH_BLOCK) + eps)
        by_key = tl.where(key == WINDOW + i, scale, by_key)
        by_query = tl.where(query == i, scale, by_query)
    return by_key, by_query


@triton.jit
def _turned_queries(asked, rope, real, scale, HALF: tl.constexpr):
    """Return the scaled, rotated query halves."""
    half = tl.arange(0, HALF)[None, :]
    low = tl.load(asked + half, mask=real, other=0.0).to(tl.float32) * scale[:, None]
    high = tl.load(asked + HALF + half, mask=real, other=0.0).to(tl.float32) * scale[:, None]
    cos = tl.load(rope + half)
    sin = tl.load(rope + HALF + half)
    return low * cos - high * sin, high * cos + low * sin


@triton.jit
def _new_rows(rows, ring, head, new, key_scale, HEADS: tl.constexpr, HALF: tl.constexpr):
    """Return halves of the new keys [KEYS, HALF] and the values [KEYS, D] as the ring has them."""
    D: tl.constexpr = 2 * HALF
    element = ring.dtype.element_ty
    half = tl.arange(0, HALF)[None, :]
    full = tl.arange(0, D)[None, :]
    low = tl.load(rows + (HEADS + head) * D + half, mask=new, other=0.0).to(tl.float32)
    high = tl.load(rows + (HEADS + head) * D + HALF + half, mask=new, other=0.0).to(tl.float32)
    value = tl.load(rows + (2 * HEADS + head) * D + full, mask=new, other=0.0).to(tl.float32)
    low = (low * key_scale[:, None]).to(element)
    high = (high * key_scale[:, None]).to(element)
    value = (value * key_scale[:, None]).to(element)
    return low, high, value


@triton.jit(do_not_specialize=["frames_each", "layer_slots"])
def _ring_attention(
    qkv, x, ring, slots, codec_frames, rope, out, frames_each, layer_slots, eps, scale,
    HEADS: tl.constexpr, HALF: tl.constexpr, WINDOW: tl.constexpr, KEYS: tl.constexpr,
    QUERIES: tl.constexpr, WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """Windowed attention of one (stream, head): all new frames, then the ring takes them in.

    Key k of the tile is the frame at distance k - WINDOW from the first new one: ring below
    WINDOW, new rows from WINDOW on. Query q stands at WINDOW + q and sees WINDOW keys back.
    """
    stream = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    D: tl.constexpr = 2 * HALF
    element = ring.dtype.element_ty
    slot = tl.load(slots + stream).to(tl.int64)
    seen = tl.load(codec_frames + slot)
    half, full = tl.arange(0, HALF)[None, :], tl.arange(0, D)[None, :]
    key, query = tl.arange(0, KEYS), tl.arange(0, QUERIES)
    is_new = (key >= WINDOW) & (key < WINDOW + frames_each)
    in_ring = (key < WINDOW) & (WINDOW - key <= seen)
    key_scale, query_scale = _scales(
        x, stream, frames_each, eps, WINDOW, KEYS, QUERIES, WIDTH, WIDTH_BLOCK
    )
    rows = qkv + ((stream * frames_each + key - WINDOW) * 3 * HEADS * D)[:, None]
    cell = (seen + key) % WINDOW  # frame seen + key - WINDOW stands at its number modulo WINDOW
    base = ring + ((layer_slots + slot) * 2 * HEADS + head) * WINDOW * D
    held = base + (cell * D)[:, None]
    new, old = is_new[:, None], in_ring[:, None]
    low, high, value = _new_rows(rows, ring, head, new, key_scale, HEADS, HALF)
    past_low = tl.load(held + half, mask=old, other=0.0)
    past_high = tl.load(held + HALF + half, mask=old, other=0.0)
    past_value = tl.load(held + HEADS * WINDOW * D + full, mask=old, other=0.0)
    key_low = tl.where(new, low, past_low).to(tl.float32)
    key_high = tl.where(new, high, past_high).to(tl.float32)
    values = tl.where(new, value, past_value)
    angle = rope + key[:, None] * D + half
    cos, sin = tl.load(angle), tl.load(angle + HALF)
    turned_low = (key_low * cos - key_high * sin).to(element)
    turned_high = (key_high * cos + key_low * sin).to(element)
    asked = qkv + ((stream * frames_each + query) * 3 * HEADS * D + head * D)[:, None]
    real = (query < frames_each)[:, None]
    spot = tl.minimum(WINDOW + query, KEYS - 1)[:, None]
    asked_low, asked_high = _turned_queries(asked, rope + spot * D, real, query_scale, HALF)
    asked_low, asked_high = asked_low.to(element), asked_high.to(element)
    score = tl.dot(asked_low, tl.trans(turned_low), input_precision="ieee")
    score = tl.dot(asked_high, tl.trans(turned_high), score, input_precision="ieee") * scale
    distance = WINDOW + query[:, None] - key[None, :]
    visible = (is_new | in_ring)[None, :] & (distance >= 0) & (distance < WINDOW)
    score = tl.where(visible, score, -1e30)
    share = tl.exp(score - tl.max(score, 1)[:, None])
    share = share / tl.sum(share, 1)[:, None]
    mixed = tl.dot(share.to(element), values, input_precision="ieee")
    result = out + ((stream * frames_each + query) * HEADS * D + head * D)[:, None] + full
    tl.store(result, mixed.to(out.dtype.element_ty), mask=real)
    # The ring is read above by this program alone; only now may its oldest cells be replaced.
    tl.debug_barrier()
    tl.store(held + half, low, mask=new)
    tl.store(held + HALF + half, high, mask=new)
    tl.store(held + HEADS * WINDOW * D + full, value, mask=new)


@triton.jit(do_not_specialize=["frames_each", "rows"])
def _count(slots, codec_frames, frames_each, rows, BLOCK: tl.constexpr):
    """Count the new frames of each stream."""
    row = tl.arange(0, BLOCK)
    inside = row < rows
    at = codec_frames + tl.load(slots + row, mask=inside, other=0)
    # Far below the limit of int32, and any value past the window means the same.
    tl.store(at, (tl.load(at, mask=inside, other=0) + frames_each), mask=inside)


def look_up(codes: Tensor, tables: Tensor, out: Tensor, out_stride: int, num_codes: int) -> None:
    """Write the sums of the 16 code rows of codes [R, n, 16] int32 to rows of `out`.

    `out` starts at the first new row; streams are `out_stride` values apart.
    """
    streams, frames, books = codes.shape
    width = tables.shape[1]
    _look_up[(streams * frames,)](
        codes, tables, out, frames, out_stride, num_codes, width,
        triton.next_power_of_2(width), books, num_warps=4,
    )  # fmt: skip


def move_pasts(
    state: Tensor, arena: Tensor, blocks: Tensor, slots: Tensor, codec_frames: Tensor, store: bool
) -> None:
    """Load every past of the streams in `slots` into the arena, or store the newest rows back."""
    _move_pasts[(blocks.shape[0], slots.shape[0])](
        state, arena, blocks, slots, codec_frames, state.stride(0), store, COPY_BLOCK, num_warps=4
    )


def ring_attention(
    qkv: Tensor, x: Tensor, ring: Tensor, layer: int, slots: Tensor, codec_frames: Tensor,
    rope: Tensor, out: Tensor, frames_each: int, eps: float,
) -> None:  # fmt: skip
    """Attend over the last `window` frames: qkv [R * n, 3 * heads * D] -> out [R * n, heads * D].

    `ring` [layers, slots, 2, heads, window, D] is read and updated in place; `codec_frames`
    [slots] int32 counts frames before this call; `rope` [window + n.., D] fp32 by distance.
    """
    _, num_slots, _, heads, window, dim = ring.shape
    width = x.shape[1]
    keys = triton.next_power_of_2(window + frames_each)
    assert rope.shape[0] >= keys
    _ring_attention[(slots.shape[0], heads)](
        qkv, x, ring, slots, codec_frames, rope, out, frames_each, layer * num_slots, eps,
        dim**-0.5, heads, dim // 2, window, keys, 16, width, triton.next_power_of_2(width),
        num_warps=4,
    )  # fmt: skip


def count_frames(slots: Tensor, codec_frames: Tensor, frames_each: int) -> None:
    """Add `frames_each` to the frame count of each slot."""
    rows = slots.shape[0]
    _count[(1,)](slots, codec_frames, frames_each, rows, triton.next_power_of_2(rows), num_warps=4)


def copy_blocks(pasts: list[tuple[int, int, int, int]], device: torch.device) -> Tensor:
    """Cut pasts into the block table of `move_pasts`, int64 [n, 5].

    Each past is (state offset, arena offset, values from stream to stream, values of the past);
    the newest rows of a stream begin (stream stride - past) values after its past.
    """
    table = []
    for state_at, arena_at, stride, num_values in pasts:
        for start in range(0, num_values, COPY_BLOCK):
            count = min(COPY_BLOCK, num_values - start)
            table.append((state_at + start, arena_at + start, stride, count, stride - num_values))
    return torch.tensor(table, dtype=torch.int64, device=device)

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""The two ends of a frame and the start of a stream: gathers and scatters over slots.

    begin: x[row] = carry[slot] + P[text_id], the row's position
    end:   carry[slot] = sum of the 16 code rows; counters move on; codes stand in the record
    join:  settings, counters, page table and constant prompt keys of new streams, one launch each

Twins: twins_state.py.
"""

import triton
import triton.language as tl
from torch import Tensor

JOIN_HEAD = 20
"""Leading int32 columns of a joiner: slot, prefix, prefix positions, flags, 8 wholes, the bits of
8 reals (sampler.py names them); the page table of the slot follows."""
KEEP_HISTORY = 1
"""Bit of a joiner's flags: a new segment of a stream; penalty history and frame counter stay."""


@triton.jit
def _begin(
    carry, text_rows, slots, text_ids, wholes, x, positions, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    slot = tl.load(slots + row).to(tl.int64)
    text = tl.load(text_ids + row).to(tl.int64)
    kept = tl.load(carry + slot * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    said = tl.load(text_rows + text * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(x + row * WIDTH + column, (kept + said).to(x.dtype.element_ty), mask=inside)
    if tl.program_id(1) == 0:
        tl.store(positions + row, tl.load(wholes + slot * 8 + 6))


@triton.jit(do_not_specialize=["last_position"])
def _end(
    codes, code_rows, slots, carry, wholes, num_codes, last_position, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, BOOKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    slot = tl.load(slots + row).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for book in tl.static_range(BOOKS):
        code = tl.load(codes + row * (BOOKS + 1) + book) + book * num_codes
        at = code_rows + code.to(tl.int64) * WIDTH + column
        total += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    tl.store(carry + slot * WIDTH + column, total.to(carry.dtype.element_ty), mask=inside)
    if tl.program_id(1) == 0:
        whole = wholes + slot * 8
        # Padding rows step scratch slot 0 for ever: it stays at its first position, where
        # attention has the least to read.
        real = tl.where(slot == 0, 0, 1)
        tl.store(whole + 4, tl.load(whole + 4) + real)
        tl.store(whole + 5, tl.load(whole + 5) + real)
        tl.store(whole + 6, tl.minimum(tl.load(whole + 6) + real, last_position))


@triton.jit(do_not_specialize=["columns"])
def _join(
    joiners, start_row, carry, wholes, reals, seen, page_table, codec_frames, columns,
    WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, WORDS: tl.constexpr, WORDS_BLOCK: tl.constexpr,
    PAGES: tl.constexpr, PAGES_BLOCK: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    told = joiners + tl.program_id(0) * columns
    slot = tl.load(told).to(tl.int64)
    keeps = (tl.load(told + 3) & 1) != 0
    page = tl.arange(0, PAGES_BLOCK)
    pages = tl.load(told + HEAD + page, mask=page < PAGES, other=0)
    tl.store(page_table + slot * PAGES + page, pages, mask=page < PAGES)
    column = tl.arange(0, WIDTH_BLOCK)
    inside = column < WIDTH
    start = tl.load(start_row + column, mask=inside, other=0.0)
    tl.store(carry + slot * WIDTH + column, start, mask=inside)
    whole = tl.arange(0, 8)
    value = tl.load(told + 4 + whole)
    counter = tl.load(wholes + slot * 8 + whole)
    value = tl.where(keeps & (whole == 4), counter, value)
    tl.store(wholes + slot * 8 + whole, value)
    setting = tl.load(told + 12 + whole).to(tl.float32, bitcast=True)
    tl.store(reals + slot * 8 + whole, setting)
    if keeps == 0:
        word = tl.arange(0, WORDS_BLOCK)
        empty = tl.zeros((WORDS_BLOCK,), tl.int32)
        tl.store(seen + slot * WORDS + word, empty, mask=word < WORDS)
        tl.store(codec_frames + slot, 0)


@triton.jit(do_not_specialize=["columns"])
def _copy_prefix(
    joiners, prefixes, cache, columns, layer_stride, HEAD: tl.constexpr, LAYERS: tl.constexpr,
    PREFIX_PAGES: tl.constexpr, PAGE_VALUES: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy one (joiner, layer, page) of constant prompt keys and values into its page."""
    told = joiners + tl.program_id(0) * columns
    layer = tl.program_id(1).to(tl.int64)
    page = tl.program_id(2)
    prefix = tl.load(told + 1).to(tl.int64)
    if page * PAGE < tl.load(told + 2):
        cell = tl.load(told + HEAD + page).to(tl.int64)
        source = prefixes + ((prefix * LAYERS + layer) * PREFIX_PAGES + page) * PAGE_VALUES
        target = cache + layer * layer_stride + cell * PAGE_VALUES
        for start in range(0, PAGE_VALUES, BLOCK):
            at = start + tl.arange(0, BLOCK)
            inside = at < PAGE_VALUES
            tl.store(target + at, tl.load(source + at, mask=inside), mask=inside)


def begin_frame(
    carry: Tensor, text_rows: Tensor, slots: Tensor, text_ids: Tensor, wholes: Tensor,
    x: Tensor, positions: Tensor,
) -> None:  # fmt: skip
    """Write x [B, H] = carry[slot] + text_rows[text_id] and each row's position [B] int32."""
    rows, width = x.shape
    block = min(1024, triton.next_power_of_2(width))
    _begin[(rows, triton.cdiv(width, block))](
        carry, text_rows, slots, text_ids, wholes, x, positions, width, block, num_warps=4
    )


def end_frame(
    codes: Tensor, code_rows: Tensor, slots: Tensor, carry: Tensor, wholes: Tensor,
    num_codes: int, last_position: int,
) -> None:  # fmt: skip
    """Write carry[slot] = sum over books of code_rows[book * num_codes + code]; count the frame."""
    rows, width = codes.shape[0], carry.shape[1]
    block = min(256, triton.next_power_of_2(width))
    _end[(rows, triton.cdiv(width, block))](
        codes, code_rows, slots, carry, wholes, num_codes, last_position, width, block,
        codes.shape[1] - 1, num_warps=2,
    )  # fmt: skip


def join_streams(
    joiners: Tensor, start_row: Tensor, carry: Tensor, wholes: Tensor, reals: Tensor, seen: Tensor,
    page_table: Tensor, codec_frames: Tensor,
) -> None:  # fmt: skip
    """Set up the slots of new streams or segments: one program each (JOIN_HEAD has the columns)."""
    width, words, pages = carry.shape[1], seen.shape[1], page_table.shape[1]
    _join[(joiners.shape[0],)](
        joiners, start_row, carry, wholes, reals, seen, page_table, codec_frames,
        joiners.shape[1], width, triton.next_power_of_2(width), words,
        triton.next_power_of_2(words), pages, triton.next_power_of_2(pages), JOIN_HEAD,
        num_warps=4,
    )  # fmt: skip


def copy_prefixes(joiners: Tensor, prefixes: Tensor, cache: Tensor, num_pages: int) -> None:
    """Copy constant prompt keys and values into the joiners' pages.

    `prefixes` [entries, layers, pages, 2, kv heads, 16, D]; `cache` [layers, pages, 2, ...];
    `num_pages`: most pages any of these joiners has to copy.
    """
    layers, prefix_pages = prefixes.shape[1:3]
    page_values = prefixes[0, 0, 0].numel()
    _copy_prefix[(joiners.shape[0], layers, num_pages)](
        joiners, prefixes, cache, joiners.shape[1], cache.stride(0), JOIN_HEAD, layers,
        prefix_pages, page_values, cache.shape[4], min(4096, triton.next_power_of_2(page_values)),
        num_warps=8,
    )  # fmt: skip

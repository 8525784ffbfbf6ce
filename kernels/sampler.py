# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""Choosing a code per row in one launch: penalty, end mask, top-k, top-p, Gumbel-max, next input.

Top-k and top-p search their thresholds by bisection on the order-preserving integer image of a
float, two bits a round, so ties at the threshold stay and nothing is sorted. Noise is Philox at
(seed; frame, codebook, token): the same words as kernels.reference on any device. All settings
are per slot and read at run time. Twin: twins_frame.choose.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Columns of the per-slot settings. Stage 0 is the talker, stage 1 the code predictor.
INVERSE_TEMPERATURE, TOP_P, SAMPLED, PENALTY = 0, 1, 2, 3
REAL_COLUMNS = 8
"""fp32 [slots, 8]: four of the talker, then four of the predictor (no penalty)."""
TOP_K, SEED_LOW, SEED_HIGH, FRAME, SEGMENT_FRAME, POSITION, DONE = 0, 2, 3, 4, 5, 6, 7
WHOLE_COLUMNS = 8
"""int32 [slots, 8]: top_k of both stages, seed halves, the utterance's frame counter (noise),
the segment's, the talker position of the next frame, and whether speech has ended."""
_WARPS = 8
"""6.1 us in a chain of launches, 6.9 with 4 and 9.8 with 2 (H200). In a frame one took 16: between
two of them 160 MB of weights pass the caches, and its code with them. Fewer values a thread and
loops that stay loops keep that short: 22 KB where it was 108."""
MAY_END = 2
"""Bit of a row's flags: the text is complete, so end of speech may be chosen."""


@triton.jit
def ordered_bits(x):
    """Map fp32 to uint32 so that order is kept; both zeros map to one value."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    flipped = tl.where(bits < 0, ~bits, bits | -2147483648)
    return flipped.to(tl.uint32, bitcast=True)


@triton.jit
def from_ordered_bits(u, LOW_BITS_ZERO: tl.constexpr):
    """Invert ordered_bits for one value whose low 16 bits are known to be zero, or any value."""
    bits = u.to(tl.int32, bitcast=True)
    back = tl.where(bits < 0, bits & 2147483647, ~bits)
    if LOW_BITS_ZERO:
        back = back & -65536
    return back.to(tl.float32, bitcast=True)


@triton.jit
def _kth_largest(image, inside, k, FIRST_SHIFT: tl.constexpr, LAST_SHIFT: tl.constexpr):
    """Return the image of the k-th largest value: three counts a round, packed in one sum."""
    found = tl.zeros((1,), tl.uint32)
    for i in range((FIRST_SHIFT - LAST_SHIFT) // 2 + 1):
        step = tl.full((1,), 1, tl.uint32) << (FIRST_SHIFT - 2 * i)
        one = found + step
        two = one + step
        three = two + step
        packed = tl.where(inside & (image >= one), 1, 0).to(tl.int64)
        packed += tl.where(inside & (image >= two), 1 << 20, 0).to(tl.int64)
        packed += tl.where(inside & (image >= three), 1, 0).to(tl.int64) << 40
        count = tl.sum(packed, 0)
        found = tl.where((count & 1048575) >= k, one, found)
        found = tl.where(((count >> 20) & 1048575) >= k, two, found)
        found = tl.where((count >> 40) >= k, three, found)
    return found


@triton.jit
def _nucleus(image, mass, wanted):
    """Return the largest image at or above which at least `wanted` of the mass lies."""
    found = tl.zeros((1,), tl.uint32)
    for i in range(16):
        step = tl.full((1,), 1, tl.uint32) << (30 - 2 * i)
        one = found + step
        two = one + step
        three = two + step
        mass_one = tl.sum(tl.where(image >= one, mass, 0.0), 0)
        mass_two = tl.sum(tl.where(image >= two, mass, 0.0), 0)
        mass_three = tl.sum(tl.where(image >= three, mass, 0.0), 0)
        found = tl.where(mass_one >= wanted, one, found)
        found = tl.where(mass_two >= wanted, two, found)
        found = tl.where(mass_three >= wanted, three, found)
    return found


@triton.jit
def _gumbel(seed_low, seed_high, frame, codebook, BLOCK: tl.constexpr):
    """Return Gumbel noise [BLOCK]: token t takes word t % 4 of block t // 4."""
    block = tl.arange(0, BLOCK // 4).to(tl.uint32)
    zero = tl.zeros((BLOCK // 4,), tl.uint32)
    w0, w1, w2, w3 = tl.philox_impl(
        block,
        zero + codebook.to(tl.uint32),
        zero + frame.to(tl.uint32, bitcast=True),
        zero,
        zero + seed_low.to(tl.uint32, bitcast=True),
        zero + seed_high.to(tl.uint32, bitcast=True),
    )
    words = tl.reshape(tl.join(tl.join(w0, w2), tl.join(w1, w3)), (BLOCK,))
    uniform = ((words >> 9).to(tl.int32).to(tl.float32) + 0.5) * 1.1920928955078125e-07
    return -tl.log(-tl.log(uniform))


@triton.jit
def _first_scores(score, token, words, penalty, may_end, SIZE: tl.constexpr):
    """Return codebook-0 scores after the penalty on codes said before and the mask of the end."""
    word = tl.load(words + token // 32, mask=token < SIZE - 1, other=0)
    was_seen = (token < SIZE - 1) & (((word >> (token % 32)) & 1) == 1)
    lowered = tl.where(score < 0, score * penalty, tl.div_rn(score, penalty))
    score = tl.where(was_seen, lowered, score)
    return tl.where((token == SIZE - 1) & (may_end == 0), float("-inf"), score)


@triton.jit
def _cut(
    score, scaled, inside, inverse_temperature, top_k, top_p, SIZE: tl.constexpr,
    TALKER: tl.constexpr, HALF_WORDS: tl.constexpr,
):  # fmt: skip
    """Return `scaled` without what lies below the k-th largest, then without the nucleus' rest."""
    if (top_k > 0) & (top_k < SIZE):
        image = ordered_bits(score)
        if HALF_WORDS and not TALKER:  # the logits hold 16 bits: eight rounds are exact
            kth = from_ordered_bits(_kth_largest(image, inside, top_k, 30, 16), True)
        else:
            kth = from_ordered_bits(_kth_largest(image, inside, top_k, 30, 0), False)
        limit = tl.max(kth, 0) * inverse_temperature
        scaled = tl.where(scaled < limit, float("-inf"), scaled)
    if top_p < 1.0:
        mass = tl.where(inside, tl.exp(scaled - tl.max(scaled, 0)), 0.0)
        wanted = tl.maximum(top_p, 1e-6) * tl.sum(mass, 0)  # the best token always stays
        found = _nucleus(ordered_bits(scaled), mass, wanted)
        limit = tl.max(from_ordered_bits(found, False), 0)
        scaled = tl.where(scaled < limit, float("-inf"), scaled)
    return scaled


@triton.jit(do_not_specialize=["codebook"])
def _choose(
    logits, source, slots, flags, reals, wholes, seen, codes, table, next_input, codebook,
    stride, source_stride, next_stride, eps, SIZE: tl.constexpr, BLOCK: tl.constexpr,
    TALKER: tl.constexpr, HALF_WORDS: tl.constexpr, MIN_FRAMES: tl.constexpr,
    WIDTH: tl.constexpr, WIDTH_BLOCK: tl.constexpr, BOOKS: tl.constexpr, NEXT: tl.constexpr,
    SOURCE_WIDTH: tl.constexpr, SOURCE_BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    stage: tl.constexpr = 0 if TALKER else 1
    slot = tl.load(slots + row).to(tl.int64)
    real = reals + slot * 8 + stage * 4
    whole = wholes + slot * 8
    token = tl.arange(0, BLOCK)
    inside = token < SIZE
    score = tl.load(logits + row * stride + token, mask=inside, other=0.0).to(tl.float32)
    row_scale = 1.0
    # All reads that need only the slot are asked for before the first is waited for.
    inverse_temperature = tl.load(real)
    top_p, sampled, top_k = tl.load(real + 1), tl.load(real + 2), tl.load(whole + stage)
    seed_low, seed_high, frame = tl.load(whole + 2), tl.load(whole + 3), tl.load(whole + 4)
    if SOURCE_WIDTH > 0:
        at = tl.arange(0, SOURCE_BLOCK)
        value = tl.load(source + row * source_stride + at, mask=at < SOURCE_WIDTH, other=0.0)
        value = value.to(tl.float32)
        row_scale = tl.rsqrt(tl.sum(value * value, 0) / SOURCE_WIDTH + eps)
    words = seen + slot * ((SIZE - 1) // 32)
    if TALKER:
        may_end = ((tl.load(flags + row) & 2) != 0) & (tl.load(whole + 5) >= MIN_FRAMES)
        score = _first_scores(score, token, words, tl.load(real + 3), may_end, SIZE)
    inverse_temperature *= row_scale
    scaled = tl.where(inside, score * inverse_temperature, float("-inf"))
    if sampled > 0:
        scaled = _cut(
            score, scaled, inside, inverse_temperature, top_k, top_p, SIZE, TALKER, HALF_WORDS
        )  # fmt: skip
        scaled += _gumbel(seed_low, seed_high, frame, codebook, BLOCK) * sampled
    code = tl.argmax(scaled, 0).to(tl.int32)
    if TALKER:
        ended = (code == SIZE - 1) | (tl.load(whole + 7) != 0)
        code = tl.where(ended, 0, code)
        tl.store(whole + 7, ended.to(tl.int32))
        tl.store(codes + row * (BOOKS + 1) + BOOKS, ended.to(tl.int32))
        bit = tl.full((1,), 1, tl.int32) << (code % 32)
        one = words + code // 32 + tl.arange(0, 1)
        tl.store(one, tl.load(one) | bit)
    tl.store(codes + row * (BOOKS + 1) + codebook, code)
    if NEXT:
        column = tl.arange(0, WIDTH_BLOCK)
        into = column < WIDTH
        value = tl.load(table + code.to(tl.int64) * WIDTH + column, mask=into, other=0.0)
        tl.store(next_input + row * next_stride + column, value, mask=into)


def choose_codes(
    logits: Tensor,
    slots: Tensor,
    flags: Tensor,
    reals: Tensor,
    wholes: Tensor,
    seen: Tensor,
    codes: Tensor,
    codebook: int,
    num_codes: int,
    min_frames: int,
    table: Tensor | None = None,
    next_input: Tensor | None = None,
    source: Tensor | None = None,
    eps: float = 0.0,
) -> None:
    """Choose codebook `codebook` of each row into `codes` [B, 17] int32 (column 16: ended).

    `logits` [B, >= num_codes (+ 1 for the talker, codebook 0: the end)], `seen` int32
    [slots, num_codes / 32]. `table` [num_codes, W]: row of the code goes to `next_input`.
    With `source` [B, H], the rows `logits` were made from with a folded norm, logits are first
    multiplied by that row's norm scale. A row whose speech has ended, now or before, gets code 0
    and ended 1.
    """
    talker = codebook == 0
    size = num_codes + 1 if talker else num_codes
    width = 1 if table is None else table.shape[1]
    into = codes if next_input is None else next_input
    rows = logits if source is None else source
    source_width = 0 if source is None else source.shape[1]
    _choose[(logits.shape[0],)](
        logits, rows, slots, flags, reals, wholes, seen, codes,
        logits if table is None else table, into, codebook, logits.stride(0), rows.stride(0),
        into.stride(0), eps, size, triton.next_power_of_2(size),
        talker, logits.dtype == torch.bfloat16, min_frames, width, triton.next_power_of_2(width),
        codes.shape[1] - 1, table is not None, source_width,
        triton.next_power_of_2(max(source_width, 1)), num_warps=_WARPS,
    )  # fmt: skip

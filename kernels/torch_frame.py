"""Every launch of the frame and of joining in plain torch: the same signatures, no Triton.

What runs where Triton's kernels do not (capability below 8.0). Shapes depend on shapes alone and
nothing waits for the device or comes from the host (a number as the branch of torch.where
would), so a CUDA graph captures all of it. Values are computed in fp32 and
rounded where the kernels round. Padding rows share slot 0 and page 0: what they leave there is
nobody's.
"""

import torch
from torch import Tensor

from playhead.kernels import twins_frame, twins_state
from playhead.kernels.attention import PAGE, SplitScratch
from playhead.kernels.frame import JOIN_HEAD, KEEP_HISTORY
from playhead.kernels.reference import philox_gumbel
from playhead.kernels.sampler import (
    DONE,
    FRAME,
    MAY_END,
    POSITION,
    REAL_COLUMNS,
    SEED_HIGH,
    SEED_LOW,
    SEGMENT_FRAME,
    TOP_K,
    WHOLE_COLUMNS,
)

_WORD_BITS = 32


def rms_norm_rows(x: Tensor, out: Tensor, eps: float) -> None:
    """Do what norm.rms_norm_rows does without weight and residual."""
    out.copy_(twins_frame.unit_rms(x.float(), eps))


def gate_rows(gate_up: Tensor, out: Tensor, eps: float, source: Tensor | None = None) -> None:
    """Do what norm.gate_rows does."""
    rows = None if source is None else source.float()
    out.copy_(twins_frame.gate_rows(gate_up.float(), eps, rows))


def begin_frame(
    carry: Tensor, text_rows: Tensor, slots: Tensor, text_ids: Tensor, wholes: Tensor,
    x: Tensor, positions: Tensor,
) -> None:  # fmt: skip
    """Do what frame.begin_frame does."""
    x.copy_(twins_state.begin_frame(carry, text_rows, slots, text_ids))
    positions.copy_(wholes[slots.long(), POSITION])


def end_frame(
    codes: Tensor, code_rows: Tensor, slots: Tensor, carry: Tensor, wholes: Tensor,
    num_codes: int, last_position: int,
) -> None:  # fmt: skip
    """Do what frame.end_frame does."""
    at, books = slots.long(), codes.shape[1] - 1
    carry[at] = twins_state.code_sum(codes[:, :books], code_rows, num_codes)
    counted, real = wholes[at], (slots != 0).int()  # scratch slot 0 stays where it is
    counted[:, FRAME] += real
    counted[:, SEGMENT_FRAME] += real
    counted[:, POSITION] = (counted[:, POSITION] + real).clamp(max=last_position)
    wholes[at] = counted


def write_kv(
    qkv: Tensor, cache: Tensor, page_table: Tensor, slots: Tensor, positions: Tensor,
    k_norm: Tensor, rope: Tensor, num_heads: int, eps: float, source: Tensor | None = None,
) -> None:  # fmt: skip
    """Do what attention.write_kv does."""
    rows = None if source is None else source.float()
    _, k, v = twins_frame.rotated_heads(
        qkv.float(), positions, (k_norm, k_norm), rope, num_heads, eps, rows
    )
    _store(k, v, cache, page_table, slots, positions)


def paged_attention(
    qkv: Tensor, cache: Tensor, page_table: Tensor, slots: Tensor, positions: Tensor,
    norms: tuple[Tensor, Tensor], rope: Tensor, out: Tensor, scratch: SplitScratch, eps: float,
    source: Tensor | None = None, append: bool = True,
) -> None:  # fmt: skip
    """Do what attention.paged_attention does; every page a slot may have is read and masked."""
    kv_heads, dim = cache.shape[2], cache.shape[4]
    num_heads = out.shape[1] // dim
    rows = None if source is None else source.float()
    q, k, v = twins_frame.rotated_heads(qkv.float(), positions, norms, rope, num_heads, eps, rows)
    if append:
        _store(k, v, cache, page_table, slots, positions)
    held = cache[page_table[slots.long()].long()]  # [N, pages, 2, kv heads, PAGE, D]
    keys, values = held.permute(2, 0, 3, 1, 4, 5).flatten(3, 4).unbind(0)
    seen = torch.arange(keys.shape[2], device=q.device) <= positions[:, None]
    grouped = q.to(cache.dtype).view(q.shape[0], kv_heads, -1, dim)
    out.copy_(_mix(grouped, keys, values, seen[:, None, None]).view_as(out))


def _store(
    k: Tensor, v: Tensor, cache: Tensor, page_table: Tensor, slots: Tensor, positions: Tensor
) -> None:
    """Put keys and values [N, kv heads, D] at the rows' positions."""
    at = positions.long()
    page = page_table[slots.long(), at // PAGE].long()
    cache[page, 0, :, at % PAGE] = k.to(cache.dtype)
    cache[page, 1, :, at % PAGE] = v.to(cache.dtype)


def _mix(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor) -> Tensor:
    """Attend with q [N, heads, G, D] over keys and values [N, heads, length, D]; softmax in fp32.

    `visible` broadcasts against [N, heads, G, length].
    """
    score = torch.matmul(q, keys.transpose(2, 3)).float() * q.shape[3] ** -0.5
    share = score.masked_fill(visible.logical_not(), float("-inf")).softmax(-1)
    return torch.matmul(share.to(values.dtype), values)


def predictor_attention(
    qkv: Tensor, cache: Tensor, norms: tuple[Tensor, Tensor], rope: Tensor, out: Tensor,
    position: int, new_rows: int, eps: float, source: Tensor | None = None,
) -> None:  # fmt: skip
    """Do what attention.predictor_attention does."""
    batch, _, kv_heads, _, dim = cache.shape
    num_heads, end = out.shape[1] // dim, position + new_rows
    new = torch.arange(position, end, device=qkv.device)
    rows = None if source is None else source.float()
    q, k, v = twins_frame.rotated_heads(
        qkv.float(), new.repeat(batch), norms, rope, num_heads, eps, rows
    )
    for which, made in ((0, k), (1, v)):
        cache[:, which, :, position:end] = made.view(batch, new_rows, kv_heads, dim).transpose(1, 2)
    keys, values = cache[:, 0, :, :end], cache[:, 1, :, :end]
    # Heads of one kv head stand together, each with its new rows.
    asked = q.to(cache.dtype).view(batch, new_rows, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
    seen = torch.arange(end, device=qkv.device) <= new.repeat(num_heads // kv_heads)[:, None]
    mixed = _mix(asked.flatten(2, 3), keys, values, seen)
    mixed = mixed.view(batch, kv_heads, -1, new_rows, dim).permute(0, 3, 1, 2, 4)
    out.copy_(mixed.reshape(batch * new_rows, -1))


def choose_codes(
    logits: Tensor, slots: Tensor, flags: Tensor, reals: Tensor, wholes: Tensor, seen: Tensor,
    codes: Tensor, codebook: int, num_codes: int, min_frames: int, table: Tensor | None = None,
    next_input: Tensor | None = None, source: Tensor | None = None, eps: float = 0.0,
) -> None:  # fmt: skip
    """Do what sampler.choose_codes does."""
    at, talker = slots.long(), codebook == 0
    whole, stage = wholes[at].long(), int(not talker)
    real = reals[at].view(-1, 2, REAL_COLUMNS // 2)[:, stage]
    scores = logits[:, : num_codes + talker].float()
    if source is not None:
        scale = torch.rsqrt(source.float().square().mean(-1, keepdim=True) + eps)
        scores = scores * scale
    words = seen[at]
    must_go_on = ((flags & MAY_END) == 0) | (whole[:, SEGMENT_FRAME] < min_frames)
    noise = philox_gumbel(_seeds(whole), whole[:, FRAME], 1, scores.shape[1], codebook)[:, 0]
    chosen = twins_frame.choose_with(
        scores, noise, real[:, 0], whole[:, TOP_K + stage], real[:, 1], real[:, 2],
        _said(words, scores) if talker else None, real[:, 3], must_go_on if talker else None,
    )  # fmt: skip
    if talker:
        ended = (chosen == num_codes) | (whole[:, DONE] != 0)
        chosen = chosen.masked_fill(ended, 0)
        wholes[at, DONE] = ended.int()
        codes[:, -1] = ended.int()
        cell = (chosen // _WORD_BITS)[:, None]
        bit = torch.ones_like(words[:, :1]) << (chosen % _WORD_BITS).int()[:, None]
        seen[at] = words.scatter(1, cell, words.gather(1, cell) | bit)
    codes[:, codebook] = chosen.int()
    if table is not None and next_input is not None:
        next_input.copy_(table[chosen])


def _seeds(whole: Tensor) -> Tensor:
    """Return the 64-bit keys [B] of the halves in settings [B, WHOLE_COLUMNS] int64."""
    return (whole[:, SEED_HIGH] << _WORD_BITS) | (whole[:, SEED_LOW] & 0xFFFFFFFF)


def _said(words: Tensor, scores: Tensor) -> Tensor:
    """Unpack bits [B, num_codes / 32] to a mask like scores [B, num_codes + 1]; the end is not."""
    bits = (words[:, :, None] >> torch.arange(_WORD_BITS, device=words.device)) & 1
    return torch.cat([bits.flatten(1) == 1, torch.zeros_like(scores[:, :1], dtype=torch.bool)], 1)


def join_streams(
    joiners: Tensor, start_row: Tensor, carry: Tensor, wholes: Tensor, reals: Tensor, seen: Tensor,
    page_table: Tensor, codec_frames: Tensor,
) -> None:  # fmt: skip
    """Do what frame.join_streams does."""
    at = joiners[:, 0].long()
    keeps = (joiners[:, 3] & KEEP_HISTORY) != 0
    page_table[at] = joiners[:, JOIN_HEAD:]
    carry[at] = start_row
    told = joiners[:, 4 : 4 + WHOLE_COLUMNS].clone()
    told[:, FRAME] = torch.where(keeps, wholes[at, FRAME], told[:, FRAME])
    wholes[at] = told
    reals[at] = joiners[:, 12 : 12 + REAL_COLUMNS].contiguous().view(torch.float32)
    new = keeps.logical_not()
    seen[at] = seen[at].masked_fill(new[:, None], 0)
    codec_frames[at] = codec_frames[at].masked_fill(new, 0)


def copy_prefixes(joiners: Tensor, prefixes: Tensor, cache: Tensor, num_pages: int) -> None:
    """Do what frame.copy_prefixes does; a joiner with fewer pages writes the rest to page 0."""
    index, num_positions = joiners[:, 1].long(), joiners[:, 2]
    for page in range(num_pages):
        cell = joiners[:, JOIN_HEAD + page].long()
        cell = cell.masked_fill(page * PAGE >= num_positions, 0)
        cache[:, cell] = prefixes[index, :, page].transpose(0, 1)

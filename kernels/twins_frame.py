"""Torch twins of the frame kernels: what each launch must compute, in plain wide arithmetic.

Slow and simple on purpose; the oracles of tests/kernels and of the check on a real device.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.kernels.reference import (
    philox_gumbel,
    repetition_penalty,
    top_k_threshold,
    top_p_threshold,
)


def unit_rms(x: Tensor, eps: float) -> Tensor:
    """Return x / rms(x) over the last axis."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def gate_rows(gate_up: Tensor, eps: float, source: Tensor | None = None) -> Tensor:
    """Twin of norm.gate_rows."""
    if source is not None:
        gate_up = gate_up * torch.rsqrt((source * source).mean(-1, keepdim=True) + eps)
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def _rotate(x: Tensor, rope: Tensor) -> Tensor:
    """Rotate heads [.., heads, D] with rope rows [.., D] of cos, then sin."""
    half = x.shape[-1] // 2
    cos, sin = rope[..., None, :half], rope[..., None, half:]
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def rotated_heads(
    qkv: Tensor,
    positions: Tensor,
    norms: tuple[Tensor, Tensor],
    rope: Tensor,
    num_heads: int,
    eps: float,
    source: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k (head-normed, rotated) and v of rows [N, (HQ + 2 HKV) * D]."""
    dim = norms[0].shape[0]
    if source is not None:
        qkv = qkv * torch.rsqrt((source * source).mean(-1, keepdim=True) + eps)
    heads = qkv.view(qkv.shape[0], -1, dim)
    num_kv = (heads.shape[1] - num_heads) // 2
    q, k, v = torch.split(heads, [num_heads, num_kv, num_kv], 1)
    at = rope[positions.long()].to(qkv.dtype)
    return (
        _rotate(unit_rms(q, eps) * norms[0], at),
        _rotate(unit_rms(k, eps) * norms[1], at),
        v,
    )


def paged_attention(
    q: Tensor, cache: Tensor, page_table: Tensor, slots: Tensor, positions: Tensor
) -> Tensor:
    """Attend with q [N, HQ, D] over a cache that already holds each row's own position."""
    page = cache.shape[3]
    rows = []
    for i in range(q.shape[0]):
        length = int(positions[i]) + 1
        pages = page_table[int(slots[i]), : (length + page - 1) // page].long()
        held = cache[pages].permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :length]
        mixed = F.scaled_dot_product_attention(
            q[i][None, :, None], held[0][None], held[1][None], enable_gqa=True
        )
        rows.append(mixed.reshape(-1))
    return torch.stack(rows)


def write_kv(
    k: Tensor, v: Tensor, cache: Tensor, page_table: Tensor, slots: Tensor, positions: Tensor
) -> None:
    """Put keys and values [N, HKV, D] into the pages of their slots."""
    page = cache.shape[3]
    for i in range(k.shape[0]):
        at = int(positions[i])
        cell = int(page_table[int(slots[i]), at // page])
        cache[cell, 0, :, at % page] = k[i]
        cache[cell, 1, :, at % page] = v[i]


def choose(
    logits: Tensor,
    noise_seed: Tensor,
    frame: Tensor,
    codebook: int,
    inverse_temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    sampled: Tensor,
    seen: Tensor | None = None,
    penalty: Tensor | None = None,
    must_go_on: Tensor | None = None,
) -> Tensor:
    """Twin of sampler.choose_codes: codes [B] from logits [B, V]; the end is the last column.

    All settings are [B]; top_k 0 and top_p >= 1 are off, `sampled` 0 is greedy.
    """
    noise = philox_gumbel(noise_seed, frame, 1, logits.shape[1], codebook)[:, 0]
    return choose_with(
        logits, noise, inverse_temperature, top_k, top_p, sampled, seen, penalty, must_go_on
    )


def choose_with(
    logits: Tensor,
    noise: Tensor,
    inverse_temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    sampled: Tensor,
    seen: Tensor | None = None,
    penalty: Tensor | None = None,
    must_go_on: Tensor | None = None,
) -> Tensor:
    """Choose like `choose` with noise [B, V] that is drawn already."""
    size, never = logits.shape[1], float("-inf")
    scores = logits.float()
    if seen is not None and penalty is not None:
        scores = repetition_penalty(scores, seen, penalty[:, None])
    if must_go_on is not None:
        scores = scores.clone()
        scores[:, -1].masked_fill_(must_go_on, never)
    scores = scores * inverse_temperature[:, None]
    limit = top_k.masked_fill(top_k <= 0, size).clamp(max=size)[:, None]
    scores = scores.masked_fill(scores < top_k_threshold(scores, limit, size), never)
    nucleus = top_p_threshold(scores, top_p[:, None])
    scores = scores.masked_fill((top_p[:, None] < 1) & (scores < nucleus), never)
    return (scores + noise * sampled[:, None]).argmax(-1)

"""Every launch of the codec in plain torch: the same signatures, no Triton (see torch_frame.py)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.kernels import twins_codec
from playhead.kernels.codec_state import COPY_BLOCK
from playhead.kernels.conv import GELU, NONE, ConvScratch, ConvWeight, Rows, Snake


def look_up(codes: Tensor, tables: Tensor, out: Tensor, out_stride: int, num_codes: int) -> None:
    """Do what codec_state.look_up does."""
    streams, frames, books = codes.shape
    width = tables.shape[1]
    offset = torch.arange(books, device=codes.device) * num_codes
    into = out.as_strided((streams, frames, width), (out_stride, width, 1))
    into.copy_(tables[codes.long() + offset].float().sum(2))


def move_pasts(
    state: Tensor, arena: Tensor, blocks: Tensor, slots: Tensor, codec_frames: Tensor, store: bool
) -> None:
    """Do what codec_state.move_pasts does.

    Lanes past the end of a block move its first value once more: shapes stay what they are.
    """
    lane = torch.arange(COPY_BLOCK, device=state.device)
    state_at, arena_at, stride, count, newest = blocks.t()[:, :, None].unbind(0)
    lane = lane * (lane < count)
    row = torch.arange(slots.shape[0], device=state.device)[:, None, None]
    kept = slots.long()[:, None, None], (state_at + lane)[None]
    past = arena_at + row * stride + lane
    if store:
        state[kept] = arena[past + newest]
    else:
        begun = codec_frames[slots.long()] > 0
        arena[past] = state[kept].masked_fill(begun.logical_not()[:, None, None], 0)


def ring_attention(
    qkv: Tensor, x: Tensor, ring: Tensor, layer: int, slots: Tensor, codec_frames: Tensor,
    rope: Tensor, out: Tensor, frames_each: int, eps: float,
) -> None:  # fmt: skip
    """Do what codec_state.ring_attention does."""
    _, _, _, heads, window, dim = ring.shape
    streams, device, dtype = slots.shape[0], qkv.device, ring.dtype
    at, seen = slots.long()[:, None], codec_frames[slots.long()][:, None]
    scaled = qkv.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    shape = (streams, frames_each, 3, heads, dim)
    q, k, v = scaled.to(dtype).view(shape).permute(2, 0, 3, 1, 4).unbind(0)
    # Key i of the tile is the frame at distance i - window from the first new one.
    old = (seen + torch.arange(window, device=device)) % window
    past = ring[layer, at, :, :, old.long()].permute(2, 0, 3, 1, 4)
    keys, values = (torch.cat([p, n], 2) for p, n in zip(past.unbind(0), (k, v), strict=True))
    key = torch.arange(window + frames_each, device=device)
    query = window + torch.arange(frames_each, device=device)
    turned = _turn(keys, rope[: window + frames_each]).to(dtype)
    asked = _turn(q, rope[window : window + frames_each]).to(dtype)
    distance = query[:, None] - key
    there = (key >= window - seen)[:, None, None]
    visible = ((distance >= 0) & (distance < window)) & there
    score = torch.matmul(asked, turned.transpose(2, 3)).float() * dim**-0.5
    share = score.masked_fill(visible.logical_not(), float("-inf")).softmax(-1)
    # A tile cell that holds nothing yet may hold anything: 0 x NaN is NaN.
    held = values.masked_fill((key < window - seen)[:, None, :, None], 0.0)
    mixed = torch.matmul(share.to(dtype), held)
    out.copy_(mixed.transpose(1, 2).reshape(out.shape))
    cell = ((seen + torch.arange(frames_each, device=device)) % window).long()
    for which, made in ((0, k), (1, v)):
        ring[layer, at, which, :, cell] = made.transpose(1, 2)


def _turn(x: Tensor, rope: Tensor) -> Tensor:
    """Rotate rows [.., n, D] with rope [n, D] of cosines, then sines; in fp32."""
    low, high = x.float().chunk(2, -1)
    cos, sin = rope.chunk(2, -1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def count_frames(slots: Tensor, codec_frames: Tensor, frames_each: int) -> None:
    """Do what codec_state.count_frames does."""
    at = slots.long()
    codec_frames[at] = codec_frames[at] + frames_each


def causal_conv(
    held: Rows, weight: ConvWeight, plain: Rows | None = None, curved: Rows | None = None,
    snake: Snake | None = None, residual: Rows | None = None, act: int = NONE,
    scratch: ConvScratch | None = None,
) -> None:  # fmt: skip
    """Do what conv.causal_conv does: all taps of a row side by side, one matrix product."""
    num = held.new.shape[1]
    starts = [tap * weight.dilation for tap in range(weight.taps)]
    rows = torch.cat([held.buffer[:, start : start + num] for start in starts], 2)
    total = torch.matmul(rows, weight.matrix).float() + weight.bias
    if act == GELU:
        total = F.gelu(total)
    if residual is not None:
        total = total + residual.new.reshape(total.shape).float()
    if plain is not None:
        plain.new.copy_(total.view(plain.new.shape))
    if curved is not None and snake is not None:
        wave = twins_codec.snake(total, snake.alpha, snake.inverse_beta)
        curved.new.copy_(wave.view(curved.new.shape))


def mix_depthwise(
    held: Rows, weight: Tensor, bias: Tensor, narrow_bias: Tensor, carried: Rows, out: Rows,
    eps: float,
) -> None:  # fmt: skip
    """Do what conv.mix_depthwise does."""
    carried.new.copy_(held.new.float() + narrow_bias)
    out.new.copy_(twins_codec.mix_depthwise(held.buffer.float(), weight, bias, eps))


def last_conv(held: Rows, weight: Tensor, bias: Tensor, samples: Tensor) -> None:
    """Do what conv.last_conv does."""
    wide = twins_codec.causal_conv(held.buffer.float(), weight.flatten()[:, None], bias,
                                   weight.shape[0], 1)  # fmt: skip
    samples.copy_(wide[:, :, 0].clamp(-1.0, 1.0))

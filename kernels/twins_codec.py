"""Torch twins of the codec kernels, in plain wide arithmetic; oracles of their tests."""

import torch
from torch import Tensor
from torch.nn import functional as F


def causal_conv(held: Tensor, matrix: Tensor, bias: Tensor, taps: int, dilation: int) -> Tensor:
    """Convolve held rows [R, past + T, C] with matrix [taps * C, N] to [R, T, N]."""
    channels = held.shape[2]
    kernel = matrix.view(taps, channels, -1).permute(2, 1, 0)
    return F.conv1d(held.transpose(1, 2), kernel, bias, dilation=dilation).transpose(1, 2)


def snake(x: Tensor, alpha: Tensor, inverse_beta: Tensor) -> Tensor:
    """Return x + sin(alpha x)^2 * inverse_beta."""
    return x + (x * alpha).sin().square() * inverse_beta


def mix_depthwise(held: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Depthwise causal convolution (weight [taps, C]) and layer norm without weights."""
    mixed = F.conv1d(held.transpose(1, 2), weight.t()[:, None], bias, groups=held.shape[2])
    return F.layer_norm(mixed.transpose(1, 2), (held.shape[2],), eps=eps)


def look_up(codes: Tensor, tables: Tensor, num_codes: int) -> Tensor:
    """Return the sums of the 16 code rows of codes [R, n, 16]."""
    offset = torch.arange(codes.shape[2]) * num_codes
    return tables[(codes.long() + offset)].sum(2)


def ring_attention(
    q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, rope: Tensor, window: int
) -> Tensor:
    """Attend new rows [n, heads, D] of one stream over its past [m, heads, D], un-rotated keys.

    `rope` [positions, D] holds cos, then sin. Query i sees the `window` frames up to itself.
    """
    keys, values = torch.cat([past_k, k]), torch.cat([past_v, v])
    start, half = past_k.shape[0], q.shape[2] // 2

    def turn(x: Tensor, at: Tensor) -> Tensor:
        cos, sin = rope[at][:, None, :half], rope[at][:, None, half:]
        low, high = x[..., :half], x[..., half:]
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    rows = []
    for i in range(q.shape[0]):
        first = max(0, start + i + 1 - window)
        seen = torch.arange(first, start + i + 1)
        turned = turn(keys[seen], seen - first)
        asked = turn(q[i : i + 1], torch.tensor([start + i - first]))
        score = (asked * turned).sum(-1) * q.shape[2] ** -0.5
        rows.append((score.softmax(0)[..., None] * values[seen]).sum(0).reshape(-1))
    return torch.stack(rows)

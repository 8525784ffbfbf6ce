"""Dense decoder blocks of talker, predictor and codec, named as in the reference package."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Root-mean-square norm."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        """Start at weight one."""
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


def rotary(length: int, width: int, theta: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosines and sines [length, width]."""
    inverse = 1.0 / theta ** (torch.arange(0, width, 2, device=device).float() / width)
    angles = torch.arange(length, device=device).float()[:, None] * inverse[None]
    both = torch.cat([angles, angles], -1)
    return both.cos(), both.sin()


def rotate(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotate-half rotary positions to x [..., T, head width]."""
    cosine, sine = turns
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * cosine.to(x.dtype) + turned * sine.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention, with or without query and key norms."""

    def __init__(self, width: int, heads: int, kv_heads: int, normed: bool = True) -> None:
        """Build for a width."""
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads, width // heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.v_proj = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.q_norm: nn.Module = RmsNorm(self.head_width) if normed else nn.Identity()
        self.k_norm: nn.Module = RmsNorm(self.head_width) if normed else nn.Identity()

    def forward(
        self, x: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor | None = None
    ) -> Tensor:
        """Attend causally, or as `mask` [T, T] allows."""
        batch, length, _ = x.shape

        def split(t: Tensor, heads: int) -> Tensor:
            return t.view(batch, length, heads, self.head_width)

        q = rotate(self.q_norm(split(self.q_proj(x), self.heads)).transpose(1, 2), turns)
        k = rotate(self.k_norm(split(self.k_proj(x), self.kv_heads)).transpose(1, 2), turns)
        v = split(self.v_proj(x), self.kv_heads).transpose(1, 2)
        if self.heads != self.kv_heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        """Build for a width."""
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Gate, multiply, project back."""
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, width: int, heads: int, kv_heads: int, inner: int, dropout: float) -> None:
        """Build for a width."""
        super().__init__()
        self.self_attn, self.mlp = Attention(width, heads, kv_heads), Mlp(width, inner)
        self.input_layernorm, self.post_attention_layernorm = RmsNorm(width), RmsNorm(width)
        self.dropout = dropout

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Run x [B, T, width]."""
        attended = self.self_attn(self.input_layernorm(x), turns)
        x = x + F.dropout(attended, self.dropout, self.training)
        lifted = self.mlp(self.post_attention_layernorm(x))
        return x + F.dropout(lifted, self.dropout, self.training)


class Stack(nn.Module):
    """Decoder layers and the final norm."""

    def __init__(
        self, width: int, layers: int, heads: int, kv_heads: int, inner: int, dropout: float
    ) -> None:
        """Build the layers."""
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(width, heads, kv_heads, inner, dropout) for _ in range(layers)
        )
        self.norm = RmsNorm(width)

    def run(self, x: Tensor, theta: float) -> Tensor:
        """Run x [B, T, width] from position 0."""
        attention = self.layers[0].self_attn
        assert isinstance(attention, Attention)
        turns = rotary(x.shape[1], attention.head_width, theta, x.device)
        for layer in self.layers:
            x = layer(x, turns)
        return self.norm(x)

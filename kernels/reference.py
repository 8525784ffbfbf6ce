"""Plain torch twins of the device kernels: the CPU backend, and the oracle of every kernel test.

Each function is a pure computation on tensors of any batch size and device. Noise comes from
Philox counters in int64, so a draw depends on its seed and counters alone, never on the batch.
"""

import functools

import torch
from torch import Tensor

_PHILOX_M0, _PHILOX_M1 = 0xD2511F53, 0xCD9E8D57
_PHILOX_W0, _PHILOX_W1 = 0x9E3779B9, 0xBB67AE85
_PHILOX_ROUNDS = 10
_WORD = 0xFFFFFFFF
_LEAST_MASS = 1e-6
"""A nucleus of no mass still keeps the best token."""


def _constant(value: float, like: Tensor) -> Tensor:
    """Return a one-element tensor of a number, made once per dtype and device."""
    return _constant_of(value, like.dtype, like.device)


@functools.cache
def _constant_of(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.full((1,), value, dtype=dtype, device=device)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise the last axis by its root mean square.

    `x` [..., D]; `weight` broadcasts against it. The mean is taken in at least fp32 and the
    result is rounded to the dtype of `x` before the weight multiplies it (spec section 8).
    """
    narrow = x.dtype in (torch.bfloat16, torch.float16)
    wide = x.float() if narrow else x
    # A norm, a fused multiply-add and no Python scalar: half the time of F.rms_norm on CPU.
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    mean_square = torch.addcmul(_constant(eps, wide), norm, norm, value=1.0 / x.shape[-1])
    normed: Tensor = wide * mean_square.rsqrt_()
    if narrow:
        normed = normed.to(x.dtype)
    return normed.mul_(weight)


def rope_tables(
    positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return cos and signed sin [..., head_dim] for integer positions of any shape.

    The sine of the first half is negated, so that `rope` needs one roll and no concatenation.
    Angles are computed in fp32 (fp64 where the model runs in it), then cast.
    """
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    steps = torch.arange(0, head_dim, 2, device=positions.device).to(exact) / head_dim
    angle = positions.to(exact).unsqueeze(-1) * (1.0 / theta**steps)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([cos, cos], -1).to(dtype), torch.cat([-sin, sin], -1).to(dtype)


def rope(x: Tensor, cos: Tensor, sin: Tensor, out: Tensor | None = None) -> Tensor:
    """Rotate the two halves of the last axis of `x` [..., D]; `sin` is signed (rope_tables)."""
    rolled = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * cos, rolled, sin, out=out)


def snake(x: Tensor, alpha: Tensor, inverse_beta: Tensor) -> Tensor:
    """Return x + sin(alpha * x)^2 * inverse_beta, where the parameters broadcast against x."""
    wave = (x * alpha).sin_()
    return torch.addcmul(x, wave, wave * inverse_beta)


def philox_words(
    seed: Tensor, frame: Tensor, num_codebooks: int, num_tokens: int, first_codebook: int = 0
) -> Tensor:
    """Return 32 random bits per (row, codebook, token) as int64 [B, num_codebooks, num_tokens].

    Philox4x32-10: key = the low and high half of `seed` [B] int64; counter = (token // 4,
    codebook, frame, 0) with `frame` [B] int64; the token's low two bits choose the word.
    Codebooks are counted from `first_codebook`.
    """
    device = seed.device
    blocks = (num_tokens + 3) // 4
    shape = (seed.shape[0], num_codebooks, blocks)
    c0 = torch.arange(blocks, device=device).expand(shape)
    books = torch.arange(first_codebook, first_codebook + num_codebooks, device=device)
    c1 = books[:, None].expand(shape)
    c2 = (frame & _WORD)[:, None, None].expand(shape)
    c3 = torch.zeros_like(c0)
    k0, k1 = (seed & _WORD)[:, None, None], ((seed >> 32) & _WORD)[:, None, None]
    # Numbers as tensors: wrapping a Python scalar costs as much as the operation. Filled on the
    # device: a graph that is being captured can't take a copy from the host.
    m0, m1, half, word = (
        torch.full((), n, device=device) for n in (_PHILOX_M0, _PHILOX_M1, 32, _WORD)
    )
    for _ in range(_PHILOX_ROUNDS):
        # The product wraps modulo 2^64 and the shift is arithmetic: bits 32..63 stay right.
        first, second = c0 * m0, c2 * m1
        c0 = ((second >> half).bitwise_and_(word)).bitwise_xor_(c1).bitwise_xor_(k0)
        c2 = ((first >> half).bitwise_and_(word)).bitwise_xor_(c3).bitwise_xor_(k1)
        c1, c3 = second.bitwise_and_(word), first.bitwise_and_(word)
        k0, k1 = (k0 + _PHILOX_W0) & _WORD, (k1 + _PHILOX_W1) & _WORD
    return torch.stack([c0, c1, c2, c3], -1).flatten(2)[:, :, :num_tokens]


def philox_gumbel(
    seed: Tensor, frame: Tensor, num_codebooks: int, num_tokens: int, first_codebook: int = 0
) -> Tensor:
    """Return standard Gumbel noise fp32 [B, num_codebooks, num_tokens] (philox_words).

    The 23 high bits of each word give u = (bits + 0.5) / 2^23, never 0 and never 1 in fp32.
    """
    bits = philox_words(seed, frame, num_codebooks, num_tokens, first_codebook) >> 9
    uniform = bits.to(torch.float32).add_(0.5).mul_(2.0**-23)
    return uniform.log_().neg_().log_().neg_()


def repetition_penalty(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Divide positive and multiply negative logits [B, V] where `seen` [B, V] bool is set."""
    lowered = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, lowered, logits)


def top_k_threshold(logits: Tensor, top_k: Tensor, largest_k: int) -> Tensor:
    """Return each row's k-th largest value [B, 1]; `top_k` [B, 1] int64 in 1..largest_k."""
    best = torch.topk(logits, largest_k, dim=-1).values
    return best.gather(-1, top_k - 1)


def top_p_threshold(scores: Tensor, top_p: Tensor) -> Tensor:
    """Return the smallest score [B, 1] that a nucleus of mass `top_p` [B, 1] keeps.

    A token stays when the mass of all better ones is below top_p, so the best always stays.
    """
    ordered = scores.sort(dim=-1, descending=True).values
    mass = ordered.softmax(-1)
    before = mass.cumsum(-1) - mass
    kept = ordered.masked_fill(before >= top_p.clamp(min=_LEAST_MASS), float("inf"))
    return kept.amin(-1, keepdim=True)

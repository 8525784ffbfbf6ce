"""The plain torch twins against published answers, formulas and distributions."""

import math

import pytest
import torch
from torch import Tensor

from playhead.kernels import (
    philox_gumbel,
    philox_words,
    repetition_penalty,
    rms_norm,
    rope,
    rope_tables,
    snake,
    top_k_threshold,
    top_p_threshold,
)

INF = float("inf")


def rows(*values: list[float]) -> Tensor:
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((3, 2, 5), (7 << 32) | 9, None),
    ],
)
def test_philox_words_when_counter_is_known(
    counter: tuple[int, int, int], key: int, answer: tuple[int, ...] | None
) -> None:
    block, codebook, frame = counter
    words = philox_words(torch.tensor([key]), torch.tensor([frame]), codebook + 1, 4 * block + 4)
    found = words[0, codebook, 4 * block :].tolist()
    assert tuple(found) == (answer or philox_by_hand((block, codebook, frame, 0), key))


def philox_by_hand(counter: tuple[int, int, int, int], key: int) -> tuple[int, ...]:
    """Compute Philox4x32-10 in Python's whole numbers, as its paper states it."""
    c, k = list(counter), [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ c[3] ^ k[1],
            first & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return tuple(c)


def test_philox_words_when_seed_is_negative() -> None:
    key = -2
    words = philox_words(torch.tensor([key]), torch.tensor([0]), 1, 4)
    assert tuple(words[0, 0].tolist()) == philox_by_hand((0, 0, 0, 0), key & ((1 << 64) - 1))


def test_gumbel_when_drawn_often() -> None:
    noise = philox_gumbel(torch.arange(40), torch.arange(40), 16, 257)
    assert noise.isfinite().all()
    assert abs(noise.mean().item() - 0.5772) < 0.01
    assert abs(noise.std().item() - math.pi / math.sqrt(6)) < 0.01


def test_gumbel_when_used_for_choosing() -> None:
    weights = torch.tensor([0.5, 0.3, 0.15, 0.05])
    noise = philox_gumbel(torch.full((20_000,), 3), torch.arange(20_000), 1, 4)[:, 0]
    shares = torch.bincount((weights.log() + noise).argmax(-1), minlength=4) / 20_000
    assert (shares - weights).abs().max() < 0.015  # four standard errors


def test_gumbel_when_batch_differs() -> None:
    together = philox_gumbel(torch.tensor([4, 9]), torch.tensor([7, 1]), 16, 129)
    alone = philox_gumbel(torch.tensor([9]), torch.tensor([1]), 16, 129)
    assert torch.equal(together[1:], alone)


def test_top_k_threshold_when_values_tie() -> None:
    logits = rows([1.0, 3.0, 2.0, 2.0, 0.0], [5.0, 4.0, 3.0, 2.0, 1.0])
    threshold = top_k_threshold(logits, torch.tensor([[2], [4]]), 4)
    assert threshold.tolist() == [[2.0], [2.0]]
    assert (logits >= threshold).sum(-1).tolist() == [3, 4]


def test_top_p_threshold_when_mass_is_limited() -> None:
    scores = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for mass, kept in ((0.4, 1), (0.5, 1), (0.51, 2), (0.8, 2), (0.81, 3), (1.0, 4), (0.0, 1)):
        threshold = top_p_threshold(scores, torch.tensor([[mass]]))
        assert (scores >= threshold).sum().item() == kept, mass


def test_top_p_threshold_when_scores_are_masked() -> None:
    scores = torch.tensor([[0.0, -INF, -INF, 0.0]])
    assert top_p_threshold(scores, torch.tensor([[0.9]])).item() == 0.0


def test_repetition_penalty_when_codes_were_seen() -> None:
    logits, seen = rows([2.0, -2.0, 2.0, -2.0]), torch.tensor([[True, True, False, False]])
    found = repetition_penalty(logits, seen, torch.tensor([[2.0]]))
    assert found.tolist() == [[1.0, -4.0, 2.0, -2.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rms_norm_when_compared_with_the_formula(dtype: torch.dtype) -> None:
    x = torch.randn(3, 5, 32, dtype=torch.float64).to(dtype)
    weight = torch.randn(5, 32, dtype=torch.float64).to(dtype)
    wide = x.double()
    normed = wide / (wide.square().mean(-1, keepdim=True) + 1e-3).sqrt()
    wanted = normed.to(dtype) * weight
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-12, torch.bfloat16: 0.02}[dtype]
    torch.testing.assert_close(rms_norm(x, weight, 1e-3), wanted, atol=tolerance, rtol=tolerance)


def test_rope_when_compared_with_complex_rotation() -> None:
    x, positions = torch.randn(4, 2, 16), torch.tensor([0, 1, 7, 300])
    cos, sin = rope_tables(positions, 16, 1e4, torch.float32)
    found = rope(x, cos[:, None], sin[:, None])
    angle = positions[:, None] / 1e4 ** (torch.arange(0, 16, 2) / 16)
    turned = (
        torch.complex(x[..., :8], x[..., 8:]) * torch.polar(torch.ones_like(angle), angle)[:, None]
    )
    torch.testing.assert_close(found, torch.cat([turned.real, turned.imag], -1), atol=1e-5, rtol=0)


def test_snake_when_compared_with_the_formula() -> None:
    x, alpha, beta = torch.randn(7, 12), torch.rand(12) + 0.5, torch.rand(12) + 0.5
    wanted = x + torch.sin(alpha * x) ** 2 / beta
    torch.testing.assert_close(snake(x, alpha, 1 / beta), wanted)

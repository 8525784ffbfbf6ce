"""The sampler against its twin: ties, nucleus, penalty, end mask, noise words, next input."""

import pytest
import torch
from torch import Tensor

from playhead.kernels import sampler, twins_frame
from playhead.kernels.reference import philox_gumbel
from playhead.kernels.sampler import (
    DONE,
    FRAME,
    INVERSE_TEMPERATURE,
    MAY_END,
    PENALTY,
    SAMPLED,
    SEED_HIGH,
    SEED_LOW,
    SEGMENT_FRAME,
    TOP_K,
    TOP_P,
)
from tests.kernels.interpreter import DEVICE

CODES, ROWS, SLOTS = 128, 8, 10


def _state(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return slots, reals, wholes and the seen bitmap of eight rows of odd settings."""
    rng = torch.Generator().manual_seed(seed)
    reals, wholes = torch.zeros(SLOTS, 8), torch.zeros(SLOTS, 8, dtype=torch.int32)
    temperature = torch.tensor([0.9, 0.3, 1.0, 2.0, 0.9, 0.7, 1.0, 0.9])
    for stage in (0, 4):
        reals[1:9, stage + INVERSE_TEMPERATURE] = 1 / temperature
        reals[1:9, stage + TOP_P] = torch.tensor([1.0, 0.9, 0.5, 1.0, 0.0, 0.95, 1.0, 0.8])
        reals[1:9, stage + SAMPLED] = torch.tensor([1.0, 1, 1, 1, 1, 1, 0, 1])
    reals[1:9, PENALTY] = torch.tensor([1.05, 1.5, 1.0, 2.0, 1.05, 1.05, 1.3, 1.05])
    for stage in (0, 1):
        wholes[1:9, TOP_K + stage] = torch.tensor([50, 5, 0, 1, 20, 500, 3, 2], dtype=torch.int32)
    wholes[:, SEED_LOW] = torch.randint(-(2**31), 2**31, (SLOTS,), generator=rng).int()
    wholes[:, SEED_HIGH] = torch.randint(-(2**31), 2**31, (SLOTS,), generator=rng).int()
    wholes[:, FRAME] = torch.arange(SLOTS) * 7
    wholes[:, SEGMENT_FRAME] = torch.tensor([5, 0, 1, 2, 3, 9, 9, 9, 9, 9], dtype=torch.int32)
    seen = torch.randint(-(2**31), 2**31, (SLOTS, CODES // 32), generator=rng).int()
    slots = torch.tensor([3, 1, 2, 8, 5, 4, 7, 6], dtype=torch.int32)
    return slots.to(DEVICE), reals.to(DEVICE), wholes.to(DEVICE), seen.to(DEVICE)


def _seeds(wholes: Tensor, slots: Tensor) -> Tensor:
    low, high = wholes[slots.long(), SEED_LOW].long(), wholes[slots.long(), SEED_HIGH].long()
    return (high << 32) | (low & 0xFFFFFFFF)


def _bits(seen: Tensor) -> Tensor:
    return ((seen[:, :, None] >> torch.arange(32, device=seen.device)) & 1).bool().flatten(1)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_codebook_zero_matches_twin(dtype: torch.dtype) -> None:
    slots, reals, wholes, seen = _state()
    logits = (torch.randn(ROWS, CODES + 24) * 3).to(dtype).to(DEVICE)
    logits[:, CODES] += 6  # the end is likely
    logits[0, 3:9] = logits[0, 0]  # ties
    flags = torch.tensor([MAY_END] * 7 + [0], dtype=torch.int32, device=DEVICE)
    at, before = slots.long(), _bits(seen)[slots.long()]
    go_on = (flags == 0) | (wholes[at, SEGMENT_FRAME] < 2)
    wanted = twins_frame.choose(
        logits[:, : CODES + 1], _seeds(wholes, slots), wholes[at, FRAME].long(), 0,
        reals[at, 0], wholes[at, 0].long(), reals[at, 1], reals[at, 2],
        torch.cat([before, torch.zeros(ROWS, 1, dtype=torch.bool, device=DEVICE)], 1),
        reals[at, 3], go_on,
    )  # fmt: skip
    codes = torch.full((ROWS, 17), -7, dtype=torch.int32, device=DEVICE)
    sampler.choose_codes(logits, slots, flags, reals, wholes, seen, codes, 0, CODES, 2)
    ended = wanted == CODES
    assert ended.any() and not ended.all()
    assert torch.equal(codes[:, 0].long(), wanted.masked_fill(ended, 0))
    assert torch.equal(codes[:, 16].bool(), ended)
    assert torch.equal(wholes[at, DONE].bool(), ended)
    before[torch.arange(ROWS), codes[:, 0].long()] = True
    assert torch.equal(_bits(seen)[at], before)
    # Whatever the logits: a row that has ended stays ended.
    logits[:, CODES] = -50
    sampler.choose_codes(logits, slots, flags, reals, wholes, seen, codes, 0, CODES, 2)
    assert torch.equal(codes[:, 16].bool(), ended)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_later_codebooks_match_twin_and_fetch_the_next_input(dtype: torch.dtype) -> None:
    slots, reals, wholes, seen = _state(1)
    logits = (torch.randn(ROWS, CODES) * 3).to(dtype).to(DEVICE)
    source = (torch.randn(ROWS, 48) * 2).to(DEVICE)
    table = torch.randn(CODES, 24).to(DEVICE)
    into = torch.full((ROWS, 2, 24), float("nan"), device=DEVICE)
    codes = torch.full((ROWS, 17), -7, dtype=torch.int32, device=DEVICE)
    at = slots.long()
    sampler.choose_codes(
        logits, slots, slots, reals, wholes, seen, codes, 5, CODES, 2, table, into[:, 1], source,
        1e-6,
    )  # fmt: skip
    scale = torch.rsqrt((source * source).mean(-1) + 1e-6)
    wanted = twins_frame.choose(
        logits, _seeds(wholes, slots), wholes[at, FRAME].long(), 5, reals[at, 4] * scale,
        wholes[at, 1].long(), reals[at, 5], reals[at, 6],
    )  # fmt: skip
    assert torch.equal(codes[:, 5].long(), wanted)
    assert (codes[:, [0, 4, 6, 16]] == -7).all()
    assert torch.equal(into[:, 1], table[wanted]) and into[:, 0].isnan().all()


def test_draws_follow_the_distribution() -> None:
    """20,000 frames of the twin: frequencies fit softmax (chi-square, 7 degrees, p 1e-4: 29.9)."""
    draws, size = 20_000, 8
    logits = torch.linspace(-1, 1, size).expand(draws, size)
    ones, zeros = torch.ones(draws), torch.zeros(draws, dtype=torch.int64)
    drawn = twins_frame.choose(logits, zeros + 9, torch.arange(draws), 1, ones, zeros, ones, ones)
    counts = torch.bincount(drawn, minlength=size)
    expected = logits[0].softmax(0) * draws
    assert ((counts - expected).square() / expected).sum() < 29.9


def test_noise_is_the_same_as_on_the_host() -> None:
    """Flat scores: the code is where the noise is largest, so any wrong word shows."""
    slots, reals, wholes, seen = _state(7)
    reals[:, 4:7] = torch.tensor([1.0, 1.0, 1.0])
    wholes[:, [TOP_K + 1]] = 0
    wholes[:, FRAME] = torch.tensor([0, 1, 2**31 - 1, 500, 7, 8, 9, 10, 11, 12])
    logits = torch.zeros(ROWS, CODES, device=DEVICE)
    codes = torch.full((ROWS, 17), -7, dtype=torch.int32, device=DEVICE)
    sampler.choose_codes(logits, slots, slots, reals, wholes, seen, codes, 15, CODES, 2)
    at = slots.long()
    noise = philox_gumbel(_seeds(wholes, slots), wholes[at, FRAME].long(), 16, CODES)[:, 15]
    assert torch.equal(codes[:, 15].long(), noise.argmax(-1))

"""The persistent predictor against the twins: one program, on a device also some that wait."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.kernels import twins_frame
from playhead.kernels.predictor import (
    POSITIONS,
    PredictorPlan,
    PredictorScratch,
    PredictorWeights,
    predict_codes,
)
from playhead.kernels.reference import rope_tables
from playhead.kernels.sampler import FRAME
from tests.kernels.interpreter import DEVICE, ON_DEVICE

LAYERS, HIDDEN, HEADS, KV_HEADS, DIM, WIDE, CODES, EPS = 2, 32, 2, 1, 32, 64, 32, 1e-6


def weights() -> PredictorWeights:
    def drawn(*shape: int) -> Tensor:
        return (torch.randn(*shape) * shape[-1] ** -0.5).to(DEVICE)

    cos, sin = rope_tables(torch.arange(POSITIONS), DIM, 10_000.0, torch.float32)
    half = DIM // 2
    return PredictorWeights(
        qkv=drawn(LAYERS, (HEADS + 2 * KV_HEADS) * DIM, HIDDEN),
        out=drawn(LAYERS, HIDDEN, HEADS * DIM),
        gate_up=drawn(LAYERS, 2 * WIDE, HIDDEN),
        down=drawn(LAYERS, HIDDEN, WIDE),
        q_norms=(1 + torch.rand(LAYERS, DIM)).to(DEVICE),
        k_norms=(1 + torch.rand(LAYERS, DIM)).to(DEVICE),
        rope=torch.cat([cos[:, half:], sin[:, half:]], 1).to(DEVICE),
        heads=drawn(POSITIONS - 1, CODES, HIDDEN) * 6,
        inputs=drawn(POSITIONS - 1, CODES, HIDDEN) * 6,
    )


def twin(w: PredictorWeights, pairs: Tensor, seeds: Tensor, frame: Tensor, top_k: int) -> Tensor:
    """Return codebooks 1..15 [B, 15], in plain wide arithmetic."""
    batch = pairs.shape[0]
    past: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(LAYERS)]
    x, chosen = pairs[:, 0], []
    for position in range(POSITIONS):
        if position == 1:
            x = pairs[:, 1]
        for layer in range(LAYERS):
            at = torch.full((batch,), position, device=DEVICE)
            q, k, v = twins_frame.rotated_heads(
                twins_frame.unit_rms(x, EPS) @ w.qkv[layer].t(), at,
                (w.q_norms[layer], w.k_norms[layer]), w.rope, HEADS, EPS,
            )  # fmt: skip
            past[layer].append((k, v))
            keys = torch.stack([k for k, _ in past[layer]], 2)
            values = torch.stack([v for _, v in past[layer]], 2)
            mixed = F.scaled_dot_product_attention(q[:, :, None], keys, values, enable_gqa=True)
            y = x + mixed.reshape(batch, -1) @ w.out[layer].t()
            wide = twins_frame.unit_rms(y, EPS) @ w.gate_up[layer].t()
            x = y + twins_frame.gate_rows(wide, EPS) @ w.down[layer].t()
        if position:
            logits = twins_frame.unit_rms(x, EPS) @ w.heads[position - 1].t()
            ones = torch.ones(batch, device=DEVICE)
            limits = torch.full((batch,), top_k, device=DEVICE)
            code = twins_frame.choose(
                logits, seeds, frame, position, ones / 0.9, limits, ones, ones
            )
            chosen.append(code)
            x = w.inputs[min(position, POSITIONS - 2)][code]
    return torch.stack(chosen, 1)


@pytest.mark.slow
@pytest.mark.parametrize("programs", [1, 4] if ON_DEVICE else [1])
def test_one_launch_chooses_what_separate_products_choose(programs: int) -> None:
    """The same codes, so logits may differ by rounding only: fp32 throughout."""
    batch = 3
    w, capacity = weights(), 5
    scratch = PredictorScratch(w, capacity)
    scratch.inputs[:batch, :2] = torch.randn(batch, 2, HIDDEN)
    scratch.partial.fill_(float("nan"))
    shape = (LAYERS, capacity, 2, KV_HEADS, POSITIONS, DIM)
    cache = torch.full(shape, float("nan"), device=DEVICE)
    reals, wholes = torch.zeros(6, 8), torch.zeros(6, 8, dtype=torch.int32)
    reals[:, 4:7] = torch.tensor([1 / 0.9, 1.0, 1.0])
    wholes[:, 1], wholes[:, 2] = 7, torch.arange(6)
    wholes[:, FRAME] = 11 + torch.arange(6)
    codes = torch.full((batch, POSITIONS + 1), -1, dtype=torch.int32)
    slots = torch.tensor([2, 4, 1], dtype=torch.int32)
    reals, wholes, codes, slots = (t.to(DEVICE) for t in (reals, wholes, codes, slots))
    seen = torch.zeros(6, 1, dtype=torch.int32, device=DEVICE)
    plan = PredictorPlan(programs, 16, 16, 16, 2, 2, prefetch=False)
    for _ in range(2):  # counters and partial sums must be clean for the next launch
        predict_codes(
            w, scratch, cache, slots, torch.zeros_like(slots), reals, wholes, seen, codes, EPS, plan
        )
        at = slots.long()
        wanted = twin(w, scratch.inputs[:batch, :2].clone(), wholes[at, 2].long(),
                      wholes[at, FRAME].long(), 7)  # fmt: skip
        assert torch.equal(codes[:, 1:POSITIONS].long(), wanted)
    assert not scratch.arrived.any() and not scratch.counter[1]
    assert (codes[:, 0] == -1).all() and (codes[:, POSITIONS] == -1).all()

"""The split product against its twin: plain and gated, one split and several."""

import pytest
import torch

from playhead.kernels import twins_frame
from playhead.kernels.skinny import SkinnyPlan, SkinnyScratch, skinny_product
from tests.kernels.interpreter import DEVICE


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("gated", [False, True])
def test_skinny_product_matches_twin(splits: int, gated: bool) -> None:
    rows, depth, outputs, width = 20, 96, 32, 48
    x = torch.randn(rows, 2 * depth if gated else depth).to(DEVICE)
    weight = torch.randn(outputs, depth).to(DEVICE)
    residual = torch.randn(rows, outputs).to(DEVICE)
    source = (torch.randn(rows, width) * 4).to(DEVICE) if gated else None
    out = torch.full((rows, outputs), float("nan"), device=DEVICE)
    scratch = SkinnyScratch(64 * outputs * splits, 8, weight)
    scratch.partial.fill_(float("nan"))
    for _ in range(2):  # the counters must be clean for the next launch
        skinny_product(
            x, weight, out, scratch, SkinnyPlan(16, 16, splits), residual, gated, source, 1e-6
        )
        wide = twins_frame.gate_rows(x, 1e-6, source) if gated else x
        torch.testing.assert_close(out, wide @ weight.t() + residual, rtol=1e-4, atol=1e-4)
    assert not scratch.arrived.any()

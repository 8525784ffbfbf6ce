"""The measurement of the captured frame's logits: what it counts, and a run at toy shapes."""

import pytest
import torch

from playhead.engine.cuda_state import StateSizes
from playhead.engine.units import CODEBOOKS
from tests.bench.numerics import Bench, Errors, uneven_heads, wrong
from tests.bench.true_shapes import true_config
from tests.kernels.interpreter import ON_DEVICE

ALONE = {
    "deterministic_codes": 16.0,
    "deterministic_same_first_row": 16.0,
    "deterministic_same_last_row": 16.0,
}


def logits(gap: float) -> torch.Tensor:
    """Return [16, 2, 8] whose best two lie `gap` apart."""
    out = torch.arange(8.0).expand(CODEBOOKS, 2, 8).clone()
    out[:, :, 3] = 7 + gap
    return out


def test_choices_are_counted_where_the_gap_is_wider_than_both_errors() -> None:
    found, wide, narrow = Errors.none(), logits(1.0), logits(0.1)
    half = wide.clone()
    half[0, 0, 0] += 0.1  # talker: bound 0.15, covered from a gap of 0.3 on
    half[1:, 1, 5] -= 0.2  # predictor: bound 0.3
    other = narrow.clone()
    other[:, :, 7] += 0.11  # another choice everywhere, nowhere covered
    found.add(wide, half, wide)
    found.add(narrow, narrow, other)
    figures = found.figures()
    assert figures["positions"] == 64 and figures["covered_share"] == 0.5
    assert figures["exceptions"] == 0 and figures["same_argmax_share"] == 0.5
    assert figures["logit_bound_talker"] == pytest.approx(0.15, abs=1e-5)
    assert figures["logit_bound_predictor"] == pytest.approx(0.3, abs=1e-5)
    assert figures["bound_used"] == pytest.approx(0.11 / 0.15, abs=1e-4)
    assert wrong(figures | ALONE) == []


def test_what_does_not_hold_is_told() -> None:
    found, wide = Errors.none(), logits(1.0)
    half, swapped = wide + 0.1, wide.clone()
    swapped[4, 1, 7] = 9.0
    found.add(wide, half, swapped)
    figures = found.figures()
    assert figures["exceptions"] == 1
    told = wrong(figures | ALONE | {"deterministic_same_last_row": 15.0})
    assert len(told) == 3 and "bound" in told[0] and "last row" in told[2]
    found.add(wide, half, torch.full_like(wide, torch.nan))  # a logit that nobody wrote
    assert found.figures()["bound_used"] == torch.inf


def test_uneven_heads_keep_everything_else() -> None:
    tensors = {"talker.codec_head.weight": torch.ones(4000, 4), "talker.norm.weight": torch.ones(4)}
    made = uneven_heads(tensors)
    assert made["talker.norm.weight"] is tensors["talker.norm.weight"]
    norms = made["talker.codec_head.weight"][:, 0]
    assert 0.8 < norms.square().mean().sqrt() < 1.25 and norms.max() > 5 * norms.median()


@pytest.mark.slow
@pytest.mark.skipif(ON_DEVICE, reason="the toy heads are narrower than a matrix instruction")
def test_told_codes_run_through_all_three_models() -> None:
    """fp32: the captured body's logits are the eager model's up to the order of sums."""
    sizes = StateSizes(1, 16, 16, prefix_entries=1)
    bench = Bench(true_config("tiny"), "cpu", torch.float32, 1, sizes)
    found = bench.errors(2)
    assert found.half.max() == 0 and 0 < found.mine.max() < 2e-4  # of logits up to 20
    assert torch.stack(found.same).all()
    carried, code_rows = bench.mine.talker_state.carry[1], bench.exact._carry[1]
    torch.testing.assert_close(carried, code_rows, rtol=1e-5, atol=1e-5)  # told codes went in

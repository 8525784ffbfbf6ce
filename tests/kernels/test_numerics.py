"""The measurement of the captured frame's logits: what it counts, and a run at toy shapes."""

import pytest
import torch

from playhead.engine.cuda_state import StateSizes
from playhead.engine.units import CODEBOOKS
from tests.bench.logit_errors import Errors, margins
from tests.bench.numerics import Bench, head_scales, narrow_branches, wrong
from tests.bench.true_shapes import true_config
from tests.kernels.interpreter import ON_DEVICE

ALONE = {
    "deterministic_codes": 16.0,
    "deterministic_same_first_row": 16.0,
    "deterministic_same_last_row": 16.0,
    "deterministic_different_codes": 16.0,
    "deterministic_different_streams": 1.0,
}
NORMS = torch.ones(CODEBOOKS, 8)


def logits(gap: float) -> torch.Tensor:
    """Return [16, 2, 8] whose best two lie `gap` apart."""
    out = torch.arange(8.0).expand(CODEBOOKS, 2, 8).clone()
    out[:, :, 3] = 7 + gap
    return out


def test_choices_are_counted_where_the_gap_is_wider_than_both_errors() -> None:
    found, wide, narrow = Errors(NORMS), logits(1.0), logits(0.1)
    half = wide.clone()
    half[0, :, 0] += 0.1  # talker: bound 0.15, covered from a gap of 0.3 on
    half[1:, 1, 5] -= 0.2  # predictor: bound 0.3
    other = narrow.clone()
    other[:, :, 7] += 0.11  # another choice everywhere, nowhere covered
    found.add(wide, half, wide)
    found.add(narrow, narrow, other)
    figures = found.figures()
    assert figures["positions"] == 64 and figures["covered_share"] == 0.5
    assert figures["covered_share_least_codebook"] == 0.5
    assert figures["exceptions"] == 0 and figures["same_argmax_share"] == 0.5
    assert figures["logit_bound_talker"] == pytest.approx(0.15, abs=1e-5)
    assert figures["logit_bound_predictor"] == pytest.approx(0.3, abs=1e-5)
    assert figures["bound_used"] == pytest.approx(0.11 / 0.15, abs=1e-4)
    assert figures["rms_ratio"] == pytest.approx(1.1, abs=1e-4)
    assert wrong(figures | ALONE) == []


def test_what_does_not_hold_is_told() -> None:
    found, wide = Errors(NORMS), logits(1.0)
    half, swapped = wide + 0.1, wide.clone()
    swapped[4, 1, 7] = 9.0
    found.add(wide, half, swapped)
    figures = found.figures()
    assert figures["exceptions"] == 1
    bad = {"deterministic_same_last_row": 15.0, "deterministic_different_codes": 7.0}
    told = wrong(figures | ALONE | bad | {"deterministic_different_streams": 0.5})
    assert len(told) == 6 and "bound" in told[0] and "last row" in told[3] and "7" in told[4]
    found.add(wide, half, torch.full_like(wide, torch.nan))  # a logit that nobody wrote
    assert found.figures()["bound_used"] == torch.inf


def test_small_errors_everywhere_are_told() -> None:
    """None of them is larger than the eager model's largest."""
    found, wide = Errors(NORMS), logits(1.0)
    half = wide.clone()
    half[:, 0, 0] += 0.1
    found.add(wide, half, wide + 0.09)
    figures = found.figures()
    assert figures["bound_used"] < 1 and figures["exceptions"] == 0
    (told,) = wrong(figures | ALONE)
    assert "times the eager model's" in told


def test_a_louder_row_has_a_wider_bound() -> None:
    norms = torch.tensor([[[3.0, 1.0, 1.0, 7.0]]])
    scores = torch.tensor([[[5.0, 3.0, 1.0, -1.0], [0.0, 0.0, 4.0, 3.0]]])
    smallest = margins(scores, norms, scores.argmax(2))
    assert smallest.tolist() == [[0.5, 0.125]]  # (5 - 3) / (3 + 1); (4 - 3) / (1 + 7)
    found, half = Errors(norms[0].expand(CODEBOOKS, -1)), scores.expand(CODEBOOKS, -1, -1).clone()
    half[:, 0, 0] += 0.3  # beta 0.15
    found.add(scores.expand_as(half), half, half)
    figures = found.figures()
    assert figures["logit_bound_talker"] == pytest.approx(0.15, abs=1e-5)
    assert figures["covered_share"] == 0.5


def test_scaled_heads_keep_their_mean_square_and_every_bit() -> None:
    scales = head_scales(4000, 3, torch.device("cpu"))
    assert 0.5 < scales.square().mean().sqrt() < 2 and scales.max() > 5 * scales.median()
    row = torch.randn(4000).to(torch.bfloat16)
    assert torch.equal(row * scales / scales, row.float())
    assert (row * scales).to(torch.bfloat16).float().equal(row * scales)


def test_branches_are_narrowed_by_their_own_stack_and_nothing_else_is() -> None:
    config = true_config()
    talker, own = "talker.model.layers.0", "talker.code_predictor.model.layers.0"
    names = (f"{talker}.self_attn.o_proj", f"{own}.mlp.down_proj", f"{own}.mlp.up_proj")
    made = narrow_branches(config, {f"{name}.weight": torch.ones(1) for name in names})
    expected = [2 / 56**0.5, 2 / 10**0.5, 1.0]
    assert [float(t) for t in made.values()] == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.skipif(ON_DEVICE, reason="the toy heads are narrower than a matrix instruction")
def test_told_codes_run_through_all_three_models() -> None:
    """fp32: the captured body's logits are the eager model's up to the order of sums."""
    sizes = StateSizes(1, 16, 16, prefix_entries=1)
    bench = Bench(true_config("tiny"), "cpu", torch.float32, 1, sizes)
    bench.scale_heads()
    found = bench.errors(2)
    assert found.half_most.max() == 0 and 0 < found.mine_most.max() < 2e-5
    assert found.figures()["same_argmax_share"] == 1
    carried, code_rows = bench.mine.talker_state.carry[1], bench.exact._carry[1]
    torch.testing.assert_close(carried, code_rows, rtol=1e-5, atol=1e-5)  # told codes went in
    down = bench.mine.weights.predictor.layers[0].down
    assert isinstance(down, torch.Tensor)
    down *= 1.01
    assert bench.errors(1).mine_most[1:].min() > 1e-4  # one matrix off by 1 %

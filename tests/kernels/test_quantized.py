"""Weight-only products against their twin, and how far each kind is from the exact weights."""

import pytest
import torch

from playhead.kernels.launches import TORCH, TRITON
from playhead.kernels.quantized import (
    QuantizedKind,
    choose_cut,
    dequantized,
    quantize,
    quantized_product,
    scratch_for,
)
from tests.kernels.interpreter import DEVICE

KINDS: tuple[QuantizedKind, ...] = ("int8", "fp8", "int4")
ERROR = {"int8": 0.012, "fp8": 0.03, "int4": 0.15}
"""Norm of the weights' error over their norm, normal weights: the step of the grid over sqrt(12)
is 0.9 % of their deviation for 255 steps to 4 deviations, 2.6 % for three bits of mantissa, 11 %
for 15 steps to 2.7 deviations (the largest of a group of 128)."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "depth", "outputs", "splits"), [(5, 256, 96, 8), (70, 96, 48, 1), (20, 48, 64, 1)]
)
def test_a_product_matches_its_twin(
    kind: QuantizedKind, rows: int, depth: int, outputs: int, splits: int
) -> None:
    weight = torch.randn(outputs, depth).to(DEVICE)
    scratch = scratch_for(weight)
    made = quantize(weight, kind, scratch)
    assert (made.outputs, made.depth) == (outputs, depth)
    group = made.group if kind == "int4" else None
    assert choose_cut(outputs, depth, group, rows)[2] == (2 if group and splits > 1 else splits)
    scratch.partial.fill_(float("nan"))
    # Rows that lie apart, as the predictor's pairs do.
    x = torch.randn(2 * rows, depth).to(DEVICE).view(rows, 2, depth)[:, 1]
    wide = torch.full((rows, 3, outputs), float("nan"), device=DEVICE)
    residual, bias = torch.randn(rows, outputs).to(DEVICE), torch.randn(outputs).to(DEVICE)
    exact = x @ dequantized(made).t()
    for added in (None, residual, bias, residual):  # counters are clean for the next launch
        out = wide[:, 1]
        quantized_product(x, made, out, added)
        wanted = exact if added is None else exact + added
        torch.testing.assert_close(out, wanted, rtol=1e-4, atol=2e-4)
    assert wide[:, 0].isnan().all() and wide[:, 2].isnan().all()
    assert not scratch.arrived.any()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_keep_their_stated_precision(kind: QuantizedKind) -> None:
    weight = torch.randn(64, 512).to(DEVICE) * torch.logspace(-4, 1, 64, device=DEVICE)[:, None]
    weight[3] = 0.0
    made = quantize(weight, kind, scratch_for(weight))
    back = dequantized(made)
    error = (back - weight).norm(dim=1) / weight.norm(dim=1).clamp(min=1e-9)
    assert float(error.max()) < ERROR[kind] and not back[3].any()
    bits = 8 * made.values.nbytes / weight.numel()
    assert bits == (4 if kind == "int4" else 8)
    assert torch.equal(back.abs().argmax(1)[4:], weight.abs().argmax(1)[4:]) or kind != "int8"


def test_fp8_bits_of_every_value_are_read_exactly() -> None:
    """All 254 finite e4m3 values, subnormals too, through the kernel's integer decoding."""
    bits = torch.tensor([b for b in range(256) if b & 127 != 127], dtype=torch.uint8)
    values = torch.cat([bits, bits[:2]]).view(16, 16).to(DEVICE)
    made = quantize(torch.eye(16).to(DEVICE), "fp8", scratch_for(torch.empty(1, device=DEVICE)))
    made = type(made)(values, torch.ones(16, device=DEVICE), "fp8", made.scratch)
    out = torch.empty(16, 16, device=DEVICE)
    quantized_product(torch.eye(16).to(DEVICE), made, out)
    assert torch.equal(out.t(), values.view(torch.float8_e4m3fn).float())


def test_cuts_fill_a_device_and_fit_the_scratch() -> None:
    scratch = scratch_for(torch.empty(1, device="meta"))
    for outputs, depth in ((4096, 2048), (2048, 2048), (12288, 2048), (2048, 6144), (2112, 2048),
                           (4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)):  # fmt: skip
        for step in (None, 128):
            for rows in (8, 64, 65, 256):
                width, deep, splits = choose_cut(outputs, depth, step, rows)
                tiles = outputs // width
                assert outputs % width == 0 and depth % (deep * splits) == 0
                assert splits == 1 or tiles * splits <= scratch.arrived.numel()
                assert splits == 1 or tiles * splits * 64 * width <= scratch.partial.numel()
                assert rows > 64 or tiles * splits >= 128, (outputs, depth)


@pytest.mark.parametrize("kind", KINDS)
def test_the_launches_of_both_sets_take_plain_and_quantized_weights(kind: QuantizedKind) -> None:
    weight, x = torch.randn(32, 48).to(DEVICE), torch.randn(3, 48).to(DEVICE)
    made = quantize(weight, kind, scratch_for(weight))
    for matrix, wide in ((weight, weight), (made, dequantized(made))):
        for launches in (TRITON, TORCH):
            out = torch.empty(3, 32, device=DEVICE)
            launches.project(x, matrix, out, x[:, :32])
            torch.testing.assert_close(out, x @ wide.t() + x[:, :32], rtol=1e-4, atol=1e-4)

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator, import-untyped"
"""Row kernels around the matrix products: RMS norm, residual sums, the gated activation.

Norm weights are folded into the next matrix offline, so a kernel here mostly needs a row's scale
`rsqrt(mean(x^2) + eps)`. Twins: twins_frame.py.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def row_mean_square(x, row, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Return mean(x^2) of one row [WIDTH], accumulated in fp32."""
    column = tl.arange(0, BLOCK)
    value = tl.load(x + row * WIDTH + column, mask=column < WIDTH, other=0.0).to(tl.float32)
    return tl.sum(value * value, 0) / WIDTH


@triton.jit
def _rms_norm(
    x, residual, weight, total, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr, HAS_WEIGHT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    at = row * WIDTH + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + at, rounded, mask=inside)
        value = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value, 0) / WIDTH + eps)
    # The norm is rounded before the weight multiplies it, as the reference does.
    normed = (value * scale).to(out.dtype.element_ty)
    if HAS_WEIGHT:
        gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        normed = (normed.to(tl.float32) * gain).to(out.dtype.element_ty)
    tl.store(out + at, normed, mask=inside)


@triton.jit
def _gate(
    gate_up, source, out, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
    SOURCE_WIDTH: tl.constexpr, SOURCE_BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(gate_up + row * 2 * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * WIDTH + WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    if SOURCE_WIDTH > 0:
        scale = tl.rsqrt(row_mean_square(source, row, SOURCE_WIDTH, SOURCE_BLOCK) + eps)
        gate *= scale
        up *= scale
    value = gate * tl.sigmoid(gate) * up
    tl.store(out + row * WIDTH + column, value.to(out.dtype.element_ty), mask=inside)


def rms_norm_rows(
    x: Tensor,
    out: Tensor,
    eps: float,
    weight: Tensor | None = None,
    residual: Tensor | None = None,
    total: Tensor | None = None,
) -> None:
    """Write norm(x + residual) * weight [N, D] to `out`, the sum (if there is one) to `total`."""
    rows, width = x.shape
    assert (residual is None) == (total is None)
    _rms_norm[(rows,)](
        x, x if residual is None else residual, x if weight is None else weight,
        out if total is None else total, out, eps, width, triton.next_power_of_2(width),
        residual is not None, weight is not None, num_warps=8 if width >= 2048 else 4,
    )  # fmt: skip


def gate_rows(gate_up: Tensor, out: Tensor, eps: float, source: Tensor | None = None) -> None:
    """Write silu(gate) * up [N, I] of rows [N, 2 I].

    With `source` [N, H], the rows the product was made from with a folded norm, both halves are
    first multiplied by that row's norm scale.
    """
    rows, width = out.shape
    block = min(1024, triton.next_power_of_2(width))
    source_width = 0 if source is None else source.shape[1]
    _gate[(rows, triton.cdiv(width, block))](
        gate_up, gate_up if source is None else source, out, eps, width, block,
        source_width, triton.next_power_of_2(max(source_width, 1)), num_warps=4,
    )  # fmt: skip


def project(x: Tensor, weight: Tensor, out: Tensor, addend: Tensor | None = None) -> None:
    """Write x @ weight.T (+ addend [N, D] or [D]) to `out`; weight [D, K] as checkpoints store it.

    With `out` as its own addend nothing is copied first: 5.5 against 8.5 us for 8 rows of
    [1024, 2048] (H200).
    """
    if addend is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(addend, x, weight.t(), out=out)

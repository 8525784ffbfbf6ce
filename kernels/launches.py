"""Which kernels a graph body is made of: Triton's, or plain torch where those do not run.

Both sets have the same signatures, so the bodies (engine/cuda_frame.py, cuda_codec.py,
cuda_joins.py) are one code on every device. Products take weights of any precision.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from playhead.kernels import (
    attention,
    codec_state,
    conv,
    frame,
    norm,
    sampler,
    torch_codec,
    torch_frame,
)
from playhead.kernels.quantized import Quantized, dequantized, quantized_product

Launch = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Launches:
    """One launch each; the function of the same name in norm.py, frame.py ... says what it does."""

    project: Launch
    rms_norm_rows: Launch
    gate_rows: Launch
    begin_frame: Launch
    end_frame: Launch
    join_streams: Launch
    copy_prefixes: Launch
    write_kv: Launch
    paged_attention: Launch
    predictor_attention: Launch
    choose_codes: Launch
    look_up: Launch
    move_pasts: Launch
    ring_attention: Launch
    count_frames: Launch
    causal_conv: Launch
    mix_depthwise: Launch
    last_conv: Launch


def project(
    x: Tensor, weight: Tensor | Quantized, out: Tensor, addend: Tensor | None = None
) -> None:
    """Do what norm.project does, with weights of any precision."""
    if isinstance(weight, Tensor):
        norm.project(x, weight, out, addend)
    else:
        quantized_product(x, weight, out, addend)


def torch_project(
    x: Tensor, weight: Tensor | Quantized, out: Tensor, addend: Tensor | None = None
) -> None:
    """Do the same by the library alone; quantized weights are made wide for each product."""
    wide = weight if isinstance(weight, Tensor) else dequantized(weight).to(x.dtype)
    if addend is None:
        torch.mm(x, wide.t(), out=out)
    else:
        torch.addmm(addend, x, wide.t(), out=out)


TRITON = Launches(
    project, norm.rms_norm_rows, norm.gate_rows, frame.begin_frame, frame.end_frame,
    frame.join_streams, frame.copy_prefixes, attention.write_kv, attention.paged_attention,
    attention.predictor_attention, sampler.choose_codes, codec_state.look_up,
    codec_state.move_pasts, codec_state.ring_attention, codec_state.count_frames,
    conv.causal_conv, conv.mix_depthwise, conv.last_conv,
)  # fmt: skip
TORCH = Launches(
    torch_project, torch_frame.rms_norm_rows, torch_frame.gate_rows, torch_frame.begin_frame,
    torch_frame.end_frame, torch_frame.join_streams, torch_frame.copy_prefixes,
    torch_frame.write_kv, torch_frame.paged_attention, torch_frame.predictor_attention,
    torch_frame.choose_codes, torch_codec.look_up, torch_codec.move_pasts,
    torch_codec.ring_attention, torch_codec.count_frames, torch_codec.causal_conv,
    torch_codec.mix_depthwise, torch_codec.last_conv,
)  # fmt: skip

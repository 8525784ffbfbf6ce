"""The published 1.7B sizes with random weights made on the device: nothing is read from disk."""

from collections.abc import Mapping

import torch
from torch import Tensor

from playhead.engine.cuda_state import StateSizes
from playhead.engine.cuda_weights import CodecWeights, FrameWeights, fold_codec, fold_frame
from playhead.engine.graphs import codec_sizes
from playhead.engine.models.code_predictor import code_predictor_shapes
from playhead.engine.models.codec import codec_shapes
from playhead.engine.models.config import ModelConfig, ResolvedSampling
from playhead.engine.models.synthetic import draw
from playhead.engine.models.talker import talker_shapes
from playhead.worker.bench.checkpoint import shape_config as true_config

__all__ = ["SAMPLING", "codec_tensors", "main_tensors", "true_config", "true_weights"]

SPIKE_SIZES = StateSizes(1500, 512, 64, prefix_entries=16)
SPIKE_ROWS = (8, 32, 64, 256)
SPIKE_PROMPTS = (16, 64)
SPIKE_CODEC_FRAMES, SPIKE_CODEC_STREAMS = (1, 4, 8), 64
SPIKE_CODEC_PAIRS = codec_sizes(SPIKE_CODEC_STREAMS, SPIKE_CODEC_FRAMES)
"""What the first run on a device captures, (streams, frames) of the codec last."""

SAMPLING = ResolvedSampling(0.9, 50, 1.0, 1.05, 0.9, 50, 1.0)


def random_tensors(
    shapes: Mapping[str, tuple[int, ...]], device: str, dtype: torch.dtype, seed: int = 0
) -> dict[str, Tensor]:
    """Draw every tensor on `device`; on "meta" only their shapes exist."""
    if device == "meta":
        return {name: torch.empty(size, dtype=dtype, device=device) for name, size in
                shapes.items()}  # fmt: skip
    return {name: draw(name, size, seed, device).to(dtype) for name, size in shapes.items()}


def main_tensors(config: ModelConfig, device: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Draw talker and code predictor."""
    return random_tensors(talker_shapes(config) | code_predictor_shapes(config), device, dtype)


def codec_tensors(config: ModelConfig, device: str) -> dict[str, Tensor]:
    """Draw the codec in fp32."""
    return random_tensors(codec_shapes(config.codec), device, torch.float32)


def true_weights(
    device: str, dtype: torch.dtype, max_positions: int, config: ModelConfig
) -> tuple[FrameWeights, CodecWeights]:
    """Draw and fold both models."""
    frame = fold_frame(config, main_tensors(config, device, dtype), max_positions, dtype)
    return frame, fold_codec(config.codec, codec_tensors(config, device), dtype)

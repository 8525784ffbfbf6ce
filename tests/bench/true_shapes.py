"""The published 1.7B sizes with random weights made on the device: nothing is read from disk."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from playhead.engine.cuda_weights import CodecWeights, FrameWeights, fold_codec, fold_frame
from playhead.engine.models.code_predictor import code_predictor_shapes
from playhead.engine.models.codec import codec_shapes
from playhead.engine.models.config import (
    CodecIds,
    GenerationConfig,
    ModelConfig,
    ResolvedSampling,
    TextIds,
)
from playhead.engine.models.synthetic import SHAPES, draw
from playhead.engine.models.talker import talker_shapes

SAMPLING = ResolvedSampling(0.9, 50, 1.0, 1.05, 0.9, 50, 1.0)


def true_config(shape: str = "1.7b-customvoice", talker_layers: int | None = None) -> ModelConfig:
    """Return the config of a named shape; `talker_layers` makes a shorter talker for checks."""
    sizes = SHAPES[shape]
    talker = sizes.talker
    if talker_layers is not None:
        talker = replace(talker, num_layers=talker_layers)
    published = sizes.text_vocab > 100_000
    text = TextIds(151671, 151672, 151673, 151644, 151645, 77091)
    if not published:
        text = TextIds(*range(sizes.text_vocab - 6, sizes.text_vocab))
    num_codes = sizes.codec.num_codes
    pad = num_codes + 100
    codec_ids = CodecIds(pad, pad + 1, pad + 2, pad + 6, pad + 7, pad + 8, pad + 9)
    return ModelConfig(
        kind="custom_voice",
        size_label=sizes.size_label,
        talker=talker,
        predictor=sizes.predictor,
        codec=sizes.codec,
        codec_vocab=num_codes + 1024,
        text_vocab=sizes.text_vocab,
        text_hidden=sizes.text_hidden,
        text_ids=text,
        codec_ids=codec_ids,
        language_ids={},
        voice_ids={"ryan": pad + 900},
        dialects={},
        generation=GenerationConfig(SAMPLING, 2048),
        trained_frames=8192,
        text_front_end="qwen_bpe",
    )


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

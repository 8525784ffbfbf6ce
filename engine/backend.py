"""Which runner a profile's device gets: captured graphs on a GPU, eager torch elsewhere."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from playhead.engine.device import Tier, profile_tier
from playhead.engine.eager_runner import eager_runner
from playhead.engine.models.loader import Model
from playhead.engine.profile import Profile
from playhead.engine.runner import PROMPT_POSITIONS, Runner

if TYPE_CHECKING:
    from playhead.engine.cuda_runner import CudaRunner
    from playhead.engine.cuda_state import StateSizes
    from playhead.engine.cuda_weights import CodecWeights, FrameWeights
    from playhead.engine.graphs import GraphSizes


def device_runner(model: Model, profile: Profile) -> Runner:
    """Build the runner of the tier that `profile` gets here.

    Raises ConfigError, before a weight is read, for a device that is not there or can't do what
    the profile asks of it.
    """
    tier = profile_tier(profile, model.config)
    if tier.name == "cpu":
        return eager_runner(model, profile)
    return cuda_runner(model, profile, tier)


def cuda_runner(model: Model, profile: Profile, tier: Tier | None = None) -> "CudaRunner":
    """Build the runner that replays captured graphs on the current CUDA device, as its tier says.

    Without a tier it is the one that the profile gets on a GPU; raises ConfigError.
    """
    if tier is None:
        tier = profile_tier(replace(profile, device="cuda"), model.config)
    frame, codec = folded_weights(model, profile, tier)
    return captured_runner(frame, codec, profile, tier)


def folded_weights(
    model: Model, profile: Profile, tier: Tier, device: str = "cuda"
) -> "tuple[FrameWeights, CodecWeights]":
    """Read weights straight to the device and fold them there; `model` gives folder and config."""
    from playhead.engine.cuda_weights import fold_codec, fold_frame

    config, dtype = model.config, getattr(torch, tier.dtype)
    held = Model(model.folder, config, torch.device(device), dtype)
    with torch.inference_mode():
        positions = state_sizes(profile).max_positions
        frame = fold_frame(config, held.main_weights(), positions, dtype, tier.quantized)
        codec = fold_codec(config.codec, held.codec_weights(), dtype)
    if device != "cpu":
        torch.cuda.empty_cache()
    return frame, codec


def captured_runner(
    frame: "FrameWeights", codec: "CodecWeights", profile: Profile, tier: Tier
) -> "CudaRunner":
    """Allocate all state and capture every shape of a profile over folded weights."""
    from playhead.engine.cuda_runner import CudaRunner  # Triton: only where it is used
    from playhead.kernels.launches import TORCH, TRITON

    launches = TRITON if tier.triton else TORCH
    sizes = state_sizes(profile)
    return CudaRunner(frame, codec, sizes, graph_sizes(profile), launches, capture=tier.graphs)


def state_sizes(profile: Profile) -> "StateSizes":
    """Return what a profile decides about device memory."""
    from playhead.engine.cuda_state import StateSizes

    return StateSizes(profile.max_streams, profile.segment_frames, PROMPT_POSITIONS)


def graph_sizes(profile: Profile) -> "GraphSizes":
    """Return the shapes that a profile has captured."""
    from playhead.engine.graphs import GraphSizes, pick_size

    rows = pick_size(profile.frame_batches, profile.max_rows)
    batches = tuple(size for size in profile.frame_batches if size <= rows)
    return GraphSizes(batches, profile.chunk_frames, max_codec_streams=rows)

"""How far the scores of all 16 codebooks move when weights are kept in fewer bits.

The exact runner speaks first; then both go through that speech again, told its codes, so that one
different draw does not end the comparison. Keys and values stay each one's own: their error adds
up as it does in speech.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from playhead.engine.cuda_frame import FrameBody, Probe
from playhead.engine.cuda_runner import CudaRunner
from playhead.engine.cuda_state import StateSizes
from playhead.engine.cuda_weights import fold_codec, fold_frame
from playhead.engine.graphs import GraphSizes
from playhead.engine.messages import Sampling
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import build_prompt
from playhead.engine.units import CODEBOOKS
from playhead.kernels.launches import Launches
from playhead.kernels.quantized import QuantizedKind

ROWS, FRAMES = 4, 12
_BATCH = 8
_FIRST_TEXT_ID = 30


@dataclass(frozen=True, slots=True)
class Precision:
    """How weights are kept and what is computed in."""

    dtype: torch.dtype
    quantized: QuantizedKind | None = None


@dataclass(frozen=True, slots=True)
class LogitError:
    """Of the scores of all codebooks, rows and frames."""

    relative: float
    """Norm of the error over norm of the scores."""
    largest: float
    same_best: float
    """Share of (codebook, row, frame) whose best code is the same."""


def logit_error(
    model: Model, kept: Precision, exact: Precision, launches: Launches, frames: int = FRAMES
) -> LogitError:
    """Compare the scores of `kept` with those of `exact`; `model` gives files and device.

    Raises InputError for a checkpoint that speaks only with a cloned voice.
    """
    ours, theirs = (_bare_runner(model, each, launches) for each in (kept, exact))
    codes = [made for made, _ in _frames(model, theirs, [None] * frames)]
    wanted, got = (
        torch.stack([scores for _, scores in _frames(model, runner, codes)])
        for runner in (theirs, ours)
    )
    error = got - wanted
    return LogitError(
        float(error.norm() / wanted.norm()),
        float(error.abs().max()),
        float((got.argmax(-1) == wanted.argmax(-1)).float().mean()),
    )


def _frames(
    model: Model, runner: CudaRunner, told: Sequence[NDArray[np.int16] | None]
) -> Iterator[tuple[NDArray[np.int16], Tensor]]:
    """Yield codes [ROWS, 16] and scores [16, ROWS, num_codes] of frames from the beginning.

    Each frame goes on with the codes it is told, or with its own where that is None.
    """
    slots, weights = list(range(1, ROWS + 1)), runner.weights
    prompt = build_prompt(model, voice=None, language="auto", instruct=None, text_mode="streaming")
    for slot in slots:
        runner.close(slot)
        runner.open(slot, prompt, model.resolve_sampling(Sampling()), slot)
    runner.prefill(slots)
    like = runner.buffers.logits
    probe = Probe(
        torch.zeros(CODEBOOKS, _BATCH, weights.num_codes, device=like.device),
        torch.zeros(_BATCH, CODEBOOKS, dtype=torch.int32, device=like.device),
    )
    for step, codes in enumerate(told):
        if codes is not None:
            probe.told[:ROWS] = torch.from_numpy(codes.astype(np.int32)).to(like.device)
        body = FrameBody(
            weights, runner.talker_state, runner.buffers, _BATCH,
            probe=None if codes is None else probe,
        )  # fmt: skip
        runner.frame_replays[_BATCH] = body.run
        _settle(like)
        ids = [_FIRST_TEXT_ID + (step + slot) % 20 for slot in slots]
        made = runner.frame(slots, ids, [False] * ROWS).codes.copy()
        _settle(like)
        yield made, probe.scores[:, :ROWS].clone()


def _settle(like: Tensor) -> None:
    """Wait for the device: what is written here is not on the stream of the frames."""
    if like.device.type == "cuda":
        torch.cuda.synchronize()


def _bare_runner(model: Model, precision: Precision, launches: Launches) -> CudaRunner:
    """Build the smallest runner there is, without graphs."""
    held = Model(model.folder, model.config, model.device, precision.dtype)
    sizes = StateSizes(ROWS, FRAMES + 4, 64, prefix_entries=1)
    with torch.inference_mode():
        frame = fold_frame(
            model.config, held.main_weights(), sizes.max_positions, precision.dtype,
            precision.quantized,
        )  # fmt: skip
        codec = fold_codec(model.config.codec, held.codec_weights(), precision.dtype)
    graphs = GraphSizes((_BATCH,), (1,), (64,), max_codec_streams=1)
    return CudaRunner(frame, codec, sizes, graphs, launches, capture=False)

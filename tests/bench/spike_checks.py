"""Numbers of the captured runner against the eager fp32 models, with the same rounded weights.

Teacher-forced: after every frame the eager models go on from the captured runner's codes, so one
close draw does not end the comparison.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from playhead.engine.cuda_runner import CudaRunner
from playhead.engine.cuda_state import StateSizes
from playhead.engine.cuda_weights import fold_codec, fold_frame
from playhead.engine.eager_runner import EagerRunner
from playhead.engine.graphs import CODEC_STREAMS, GraphSizes, pick_size
from playhead.engine.models.config import ModelConfig
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import Prompt, build_prompt
from playhead.kernels import twins_frame
from playhead.kernels.sampler import FRAME
from tests.bench.true_shapes import SAMPLING, codec_tensors, main_tensors

LOGIT_TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}
"""Norm of the error over norm of the logits: bf16 operands through a few layers."""
SNR_DB = {torch.float32: 90.0, torch.float16: 50.0, torch.bfloat16: 35.0}


class Watched(EagerRunner):
    """An eager runner that shows the talker's final states."""

    hidden: Tensor

    def _choose(self, hidden: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        self.hidden = hidden
        return super()._choose(hidden, *rest)


class BareModel(Model):
    """A model of tensors that were never on disk."""

    def __init__(
        self, config: ModelConfig, main: dict[str, Tensor], codec: dict[str, Tensor]
    ) -> None:
        like = main["talker.model.norm.weight"]
        self.folder, self.config = Path(), config
        self.device, self.dtype = like.device, like.dtype
        self._main, self._codec = main, codec

    def main_weights(self) -> dict[str, Tensor]:
        return self._main

    def codec_weights(self) -> dict[str, Tensor]:
        return self._codec


def plain_prompt(model: Model) -> Prompt:
    """Return the constant prompt of a streamed request."""
    return build_prompt(model, voice=None, language="auto", instruct=None, text_mode="streaming")


def settle() -> None:
    """Wait for every stream of the device: work of the default stream is not ordered with ours."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """Return |got - wanted| / |wanted| over all values; NaN never passes a comparison."""
    return float((got.float() - wanted.float()).norm() / wanted.float().norm())


def check_models(
    config: ModelConfig, device: str, dtype: torch.dtype, rows: int, num_frames: int
) -> dict[str, float]:
    """Run `num_frames` frames and one codec call on both; return the figures that were checked."""
    main, codec = main_tensors(config, device, dtype), codec_tensors(config, device)
    # On a device the shapes of the runner that follows: kernels compile once for both.
    segment = 512 if device == "cuda" else 64
    sizes = StateSizes(rows, segment, 64, prefix_entries=2)
    graphs = GraphSizes((rows,), (1, num_frames), (16,), rows)
    mine = CudaRunner(fold_frame(config, main, sizes.max_positions, dtype),
                      fold_codec(config.codec, codec, dtype), sizes, graphs)  # fmt: skip
    wide = {name: tensor.float() for name, tensor in main.items()}
    model = BareModel(config, wide, codec)
    eager = Watched(model, rows, 64)
    slots = list(range(1, rows + 1))
    for runner in (eager, mine):
        for slot in slots:
            runner.open(slot, plain_prompt(model), SAMPLING, seed=slot * 2**33 + 1)
        runner.prefill(slots)
    told = {"talker_logits": 0.0, "last_book_logits": 0.0, "wrong_draws": 0.0}
    codes = []
    with torch.inference_mode():
        for step in range(num_frames):
            made = _one_frame(mine, eager, model, slots, step, told)
            codes.append(made)
        pcm = np.stack(codes, 1).astype(np.int16)
        wanted = eager.codec(slots, pcm)
        mine.launch_codec(slots, pcm).result()
    _, body = mine.codec_replays[pick_size(CODEC_STREAMS, rows), num_frames]
    got = body.samples[:rows].cpu().numpy()  # before they are rounded to PCM
    assert got.shape == wanted.shape
    noise = np.square(got - wanted).mean()
    told["codec_snr_db"] = float(10 * np.log10(np.square(wanted).mean() / (noise + 1e-30)))
    told["codec_peak"] = float(np.abs(wanted).max())
    limit = LOGIT_TOLERANCE[dtype]
    assert told["talker_logits"] < limit, told
    assert told["last_book_logits"] < limit, told
    assert told["wrong_draws"] == 0, told
    assert told["codec_snr_db"] > SNR_DB[dtype], told
    assert mine.captures == mine.captures_at_start
    return told


def _one_frame(
    mine: CudaRunner, eager: Watched, model: Model, slots: list[int], step: int,
    told: dict[str, float],
) -> np.ndarray:  # fmt: skip
    """Run one frame on both; fold its errors into `told`; return the codes [B, 16]."""
    ids, rows = [30 + step + s for s in slots], len(slots)
    buffers, weights, talker = mine.buffers, mine.weights, mine.talker_state
    counted = talker.wholes[1 : rows + 1, FRAME].clone().long()
    for tensor in (buffers.logits, buffers.own_logits, buffers.talker.qkv, buffers.predictor.qkv):
        tensor.fill_(float("nan"))  # whatever a kernel leaves unwritten shows
    settle()
    eager.frame(slots, ids, [False] * rows)
    made = mine.frame(slots, ids, [False] * rows).codes
    forced = torch.from_numpy(made.astype(np.int64)).to(model.device)
    num_codes = weights.num_codes
    wanted = model.talker.scores(eager.hidden)[:, :num_codes]
    error = relative_error(buffers.logits[:rows, :num_codes], wanted)
    told["talker_logits"] = max(told["talker_logits"], error)
    seen: list[Tensor] = []

    def follow(logits: Tensor, book: int) -> Tensor:
        seen.append(logits)
        return forced[:, book]

    model.code_predictor.run(eager.hidden, forced[:, 0], follow)
    source = buffers.predictor.x[:rows].float()
    scale = torch.rsqrt(source.square().mean(-1) + weights.predictor.config.rms_eps)
    last = buffers.own_logits[:rows].float() * scale[:, None]
    told["last_book_logits"] = max(told["last_book_logits"], relative_error(last, seen[-1]))
    drawn = twins_frame.choose(
        buffers.own_logits[:rows].float(), _seeds(slots, model.device), counted, 15,
        talker.reals[1 : rows + 1, 4] * scale, talker.wholes[1 : rows + 1, 1].long(),
        talker.reals[1 : rows + 1, 5], talker.reals[1 : rows + 1, 6],
    )  # fmt: skip
    told["wrong_draws"] += float((drawn != forced[:, 15]).sum())
    for runner_rows, slot in zip(forced, slots, strict=True):
        eager._carry[slot] = model.talker.frame_rows(runner_rows[None])[0]
    return made


def _seeds(slots: list[int], device: torch.device) -> Tensor:
    return torch.tensor([s * 2**33 + 1 for s in slots], device=device)

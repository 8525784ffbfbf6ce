"""The three parts of a frame twice: as a CPU ships them, and as functions of their state.

The second are the modules of `engine/models` with their caches handed in: what can be traced into
one graph for another runtime. Both on the same stored speech.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from playhead.engine.eager_runner import EagerRunner
from playhead.engine.messages import Sampling
from playhead.engine.models.code_predictor import CodePredictor
from playhead.engine.models.codec import Codec, CodecState, Slots
from playhead.engine.models.config import StackConfig
from playhead.engine.models.layers import Attend
from playhead.engine.models.loader import Model
from playhead.engine.models.prompt import build_prompt
from playhead.engine.models.sampling import BatchSampling
from playhead.engine.models.talker import Talker, TalkerCache
from playhead.engine.units import CODEBOOKS

SPEECH = Path(__file__).parents[1] / "data" / "teacher"
"""Stored codes of real sentences: what the parts are run on."""
HISTORY = 63
"""Talker positions before the step, as in `playhead bench engine`."""
CODEC_HISTORY = 20
"""Frames before the codec's: more than its window."""
COMPARED = 32
"""Frames of which the predictor's codes are compared."""


class TalkerStep(torch.nn.Module):
    """One talker step: x [B, hidden], positions [B], past [layers, B, k + v heads, P, D]."""

    def __init__(self, talker: Talker) -> None:
        super().__init__()
        self.talker = talker

    def forward(self, x: Tensor, positions: Tensor, past: Tensor) -> tuple[Tensor, ...]:
        """Return scores [B, codes + 1], states [B, hidden], new keys and values."""
        config, new = self.talker.config.talker, list[Tensor]()

        def attend(layer: int, heads: Tensor) -> Tensor:
            new.append(heads[:, config.num_heads :].unsqueeze(2))
            held = torch.cat([past[layer], new[layer]], 2)
            return mix(heads[:, : config.num_heads].unsqueeze(2), held).flatten(1)

        hidden = self.talker.stack.final(self.talker.run(x, positions, attend))
        return self.talker.scores(hidden), hidden, torch.stack(new)


class PredictorFrame(torch.nn.Module):
    """The 15 steps of a frame: hidden [B, hidden], first codes [B], noise [B, 16, codes + 1]."""

    def __init__(self, predictor: CodePredictor, sampling: BatchSampling, batch: int) -> None:
        super().__init__()
        # The predictor's own scratch is written in place; these are values.
        keys: Any = Growing(predictor.stack.config, batch)
        predictor._scratch[batch] = keys
        self.predictor, self.sampling = predictor, sampling

    def forward(self, hidden: Tensor, first: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
        """Return codes [B, 16]."""

        def choose(logits: Tensor, book: int) -> Tensor:
            return self.sampling.predictor.choose(logits, noise[:, book, : logits.shape[1]])

        return (self.predictor.run(hidden, first, choose),)


class CodecFrame(torch.nn.Module):
    """One codec frame: codes [B, 1, 16], kv [layers, B, k + v heads, window - 1, D], pasts."""

    def __init__(self, codec: Codec) -> None:
        super().__init__()
        self.codec = codec

    def forward(self, codes: Tensor, kv: Tensor, *pasts: Tensor) -> tuple[Tensor, ...]:
        """Return samples [B, 1920], then what the next frame takes."""
        batch = codes.shape[0]
        held = [Held(past) for past in pasts]
        layers = [Held(layer) for layer in kv]
        state: Any = CarriedRows(held, HeldLayers(layers, kv.device), [CODEC_HISTORY] * batch)
        samples = self.codec.decode(codes, state, range(batch))
        carried = torch.stack([layer.value for layer in layers])
        return samples, carried, *(past.value for past in held)


def mix(query: Tensor, held: Tensor, causal: bool = False) -> Tensor:
    """Attend from [B, heads, T, D] to keys and values [B, k + v heads, P, D]."""
    keys, values = held.chunk(2, 1)
    return F.scaled_dot_product_attention(query, keys, values, is_causal=causal, enable_gqa=True)


class Growing:
    """Keys and values of one frame in the making, for CodePredictor.run."""

    def __init__(self, config: StackConfig, batch: int) -> None:
        self._num_heads, self._batch = config.num_heads, batch
        self._held: dict[int, Tensor] = {}

    def attend_first(self, layer: int, heads: Tensor) -> Tensor:
        """Attend from positions 0 and 1: heads [2 * B, ...], rows of one sequence together."""
        pairs = heads.view(self._batch, 2, *heads.shape[1:]).transpose(1, 2)
        self._held[layer] = pairs[:, self._num_heads :]
        mixed = mix(pairs[:, : self._num_heads], self._held[layer], causal=True)
        return mixed.transpose(1, 2).reshape(2 * self._batch, -1)

    def attend_at(self, position: int) -> Attend:
        """Return the attention of one new row a sequence."""

        def attend(layer: int, heads: Tensor) -> Tensor:
            new = heads[:, self._num_heads :].unsqueeze(2)
            self._held[layer] = torch.cat([self._held[layer], new], 2)
            return mix(heads[:, : self._num_heads].unsqueeze(2), self._held[layer]).flatten(1)

        return attend


class Held:
    """Carried rows of a batch: read and replaced whole, where the codec writes into slots."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.shape = value.shape

    def __getitem__(self, at: Slots) -> Tensor:
        return self.value

    def __setitem__(self, at: Slots, value: Tensor) -> None:
        self.value = value


@dataclass
class HeldLayers:
    """Keys and values of the codec's window, by layer."""

    layers: list[Held]
    device: torch.device

    def __getitem__(self, key: tuple[int, Slots]) -> Tensor:
        return self.layers[key[0]].value

    def __setitem__(self, key: tuple[int, Slots], value: Tensor) -> None:
        self.layers[key[0]].value = value


@dataclass
class CarriedRows:
    """What Codec.decode reads and writes of a CodecState."""

    pasts: list[Held]
    kv: HeldLayers
    frames: list[int]


# -- the same parts as they ship, on the same speech


@dataclass
class Part:
    """One part of a frame: as it ships, and as a graph."""

    name: str
    shipped: Callable[[], object]
    core: torch.nn.Module
    inputs: list[tuple[Tensor, ...]]
    """Of the graph; the first are timed, all are compared."""
    expected: list[tuple[Tensor, ...]]
    """What ships makes of them: all that the graph puts out."""


def speech(batch: int) -> Tensor:
    """Return codes [B, F, 16] of stored sentences, each row from another place."""
    frames = np.concatenate([np.load(path)["codes"] for path in sorted(SPEECH.glob("*.npz"))])
    starts = np.linspace(0, len(frames) - HISTORY - 1, batch).astype(int)
    rows = [frames[start : start + HISTORY + 1] for start in starts]
    return torch.from_numpy(np.stack(rows).astype(np.int64))


@torch.no_grad()
def make_parts(model: Model, batch: int) -> list[Part]:
    """Run the parts as shipped up to one frame, and build the graphs' functions beside them."""
    weights = (
        model.main_weights()
    )  # a second set: not made in inference mode, which can't be traced
    talker = Talker(model.config, weights)
    predictor = CodePredictor(model.config, weights)
    codec = Codec(model.config.codec, model.codec_weights())
    codes = speech(batch)
    step, hidden = _talker_part(model, codes, TalkerStep(talker))
    return [
        step,
        _predictor_part(model, codes, hidden, predictor),
        _codec_part(model, codes, CodecFrame(codec)),
    ]


def _talker_part(model: Model, codes: Tensor, core: TalkerStep) -> tuple[Part, Tensor]:
    """Return the step and the final states [B, COMPARED, hidden] of the frames before it."""
    talker, batch = model.talker, len(codes)
    prompt = build_prompt(model, voice=None, language="auto", instruct=None, text_mode="streaming")
    pad = talker.text_rows(torch.tensor([model.config.tts_pad_id]))
    cache = TalkerCache(model.config, batch, HISTORY + 1, talker.code_rows)
    start, states = talker.prompt_rows(prompt, 0, prompt.num_rows), []
    num_frames = HISTORY - prompt.num_rows
    for slot in range(batch):
        rows = torch.cat([start, talker.frame_rows(codes[slot, :num_frames]) + pad])
        ran = talker.run(rows, torch.arange(HISTORY), cache.attend_rows(slot, 0, HISTORY))
        states.append(talker.stack.final(ran[-COMPARED:]))
    past = cache.store[:, :, :, :HISTORY].clone()
    x = talker.frame_rows(codes[:, num_frames]) + pad
    slots, positions = list(range(batch)), [HISTORY] * batch

    def shipped() -> tuple[Tensor, Tensor]:
        attend = cache.attend_steps(slots, positions)
        final = talker.stack.final(talker.run(x, torch.tensor(positions), attend))
        return talker.scores(final), final

    inputs = (x, torch.tensor(positions), past)
    expected = (*shipped(), cache.store[:, :, :, HISTORY:].clone())
    return Part("talker", shipped, core, [inputs], [expected]), torch.stack(states)


def _predictor_part(model: Model, codes: Tensor, hidden: Tensor, predictor: CodePredictor) -> Part:
    batch, num_codes = len(codes), model.config.num_codes
    settings = [model.resolve_sampling(Sampling())] * batch
    sampling = BatchSampling.of(settings, range(batch), num_codes, CODEBOOKS, torch.device("cpu"))

    def run(state: Tensor, first: Tensor, noise: Tensor) -> Tensor:
        return model.code_predictor.run(
            state, first,
            lambda logits, book: sampling.predictor.choose(logits, noise[:, book, :num_codes]),
        )  # fmt: skip

    inputs = []
    for frame in range(COMPARED):
        noise = sampling.noise(torch.tensor([frame] * batch), num_codes)
        assert noise is not None, "the embedded voice samples"
        inputs.append((hidden[:, frame].contiguous(), codes[:, frame, 0].contiguous(), noise))
    core = PredictorFrame(predictor, sampling, batch)
    return Part(
        "predictor", lambda: run(*inputs[0]), core, list(inputs), [(run(*each),) for each in inputs]
    )


def _codec_part(model: Model, codes: Tensor, core: CodecFrame) -> Part:
    slots = list(range(1, len(codes) + 1))
    state: CodecState = model.codec.new_state(len(slots) + 1)
    model.codec.decode(codes[:, :CODEC_HISTORY], state, slots)
    one = codes[:, CODEC_HISTORY : CODEC_HISTORY + 1].contiguous()
    inputs = (one, state.kv[:, 1:].clone(), *(past[1:].clone() for past in state.pasts))
    samples = model.codec.decode(one, state, slots)
    expected = (samples, state.kv[:, 1:].clone(), *(past[1:].clone() for past in state.pasts))
    return Part("codec", lambda: model.codec.decode(one, state, slots), core, [inputs], [expected])


def whole_frame(model: Model, batch: int) -> Callable[[], object]:
    """Return a call that makes one frame of each stream and its samples, as the engine does."""
    runner = EagerRunner(model, max_streams=batch, max_segment_frames=512)
    slots, pad = list(range(1, batch + 1)), [model.config.tts_pad_id] * batch
    prompt = build_prompt(model, voice=None, language="auto", instruct=None, text_mode="streaming")
    for slot in slots:
        runner.open(slot, prompt, model.resolve_sampling(Sampling()), seed=slot)
        runner.prefill([slot])

    def frame() -> None:
        codes = runner.launch_frame(slots, pad, [False] * batch).result().codes
        runner.launch_codec(slots, codes[:, None])

    for _ in range(HISTORY - prompt.num_rows):
        frame()
    return frame

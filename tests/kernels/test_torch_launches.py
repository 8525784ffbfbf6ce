"""The captured runner's code over plain torch launches: what cards without Triton's kernels run.

Where there is a CUDA device all of it is captured and replayed there.
"""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from playhead.engine import cuda_runner
from playhead.engine.cuda_frame import FrameBody, PromptBody
from playhead.engine.cuda_runner import CudaRunner
from playhead.engine.cuda_state import StateSizes
from playhead.engine.cuda_weights import fold_codec, fold_frame
from playhead.engine.eager_runner import EagerRunner
from playhead.engine.graphs import GraphSizes
from playhead.engine.messages import Sampling
from playhead.engine.models.code_predictor import code_predictor_shapes
from playhead.engine.models.codec import codec_shapes
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.models.talker import talker_shapes
from playhead.kernels.launches import TORCH
from playhead.kernels.quantized import QuantizedKind
from tests.kernels.interpreter import DEVICE

SIZES = StateSizes(max_streams=4, segment_frames=32, prompt_positions=64, prefix_entries=2)
GRAPHS = GraphSizes(frame_batches=(4,), codec_frames=(1, 2), prompt_rows=(16,),
                    max_codec_streams=4)  # fmt: skip
SETTINGS = (
    Sampling(repetition_penalty=1.9, temperature=0.0),
    Sampling(temperature=0.0, predictor_top_p=0.6, predictor_top_k=0),
    Sampling(top_p=0.7, temperature=1.3),
)
SLOTS = [3, 1, 2]
WAITS = {"nonzero", "_local_scalar_dense", "masked_select", "_unique2", "is_nonzero", "equal"}
"""Operations whose result or shape the host has to wait for."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny", dtype=torch.float32)
    return load_model(folder, dtype=torch.float32, device=DEVICE)


def runner(
    model: Model, dtype: torch.dtype = torch.float32, quantized: QuantizedKind | None = None,
    capture: bool = True,
) -> CudaRunner:  # fmt: skip
    """Build the captured runner over the launches of the twins tier."""
    config = model.config
    frame = fold_frame(config, model.main_weights(), SIZES.max_positions, dtype, quantized)
    codec = fold_codec(config.codec, model.codec_weights(), dtype)
    return CudaRunner(frame, codec, SIZES, GRAPHS, TORCH, capture)


def prompt(model: Model, row: int) -> Prompt:
    body = (5, 6) if row == 1 else ()
    return build_prompt(
        model, voice="ryan" if row else "eric", language="auto", instruct=None,
        text_mode="full" if body else "streaming", body=body,
    )  # fmt: skip


def opened(model: Model, *runners: EagerRunner | CudaRunner) -> None:
    for each in runners:
        for row, slot in enumerate(SLOTS):
            sampling = model.resolve_sampling(SETTINGS[row])
            each.open(slot, prompt(model, row), sampling, 2**33 * row + 5)
        each.prefill(SLOTS)


def test_codes_and_samples_are_those_of_the_eager_runner(model: Model) -> None:
    """fp32: the same codes over 20 frames of mixed settings and a restart; samples within 1."""
    eager, mine = EagerRunner(model, SIZES.max_streams, SIZES.segment_frames), runner(model)
    opened(model, eager, mine)
    codes = []
    for step in range(20):
        if step == 12:  # a new segment, from a stored prefix: noise counter and penalty go on
            for each in (eager, mine):
                each.restart(3, prompt(model, 0))
                each.prefill([3])
        ids, may_end = [40 + step, 50, 60 + step], [False, True, False]
        wanted, got = (each.frame(SLOTS, ids, may_end) for each in (eager, mine))
        assert np.array_equal(got.codes, wanted.codes), step
        assert np.array_equal(got.ended, wanted.ended), step
        codes.append(wanted.codes)
    together, at = np.stack(codes, 1), 0
    for frames in (1, 2, 3, 4, 7):  # beyond the codec's window of 12 frames
        part = together[:, at : at + frames]
        wanted_pcm, pcm = (each.launch_codec(SLOTS, part).result().pcm for each in (eager, mine))
        assert np.abs(wanted_pcm).max() > 3_000
        np.testing.assert_allclose(pcm, wanted_pcm, atol=1)
        at += frames


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
def test_quantized_weights_speak_too_in_less_memory(model: Model, kind: QuantizedKind) -> None:
    mine, exact = runner(model, quantized=kind), runner(model)
    opened(model, mine, exact)
    for step in range(3):
        made = mine.frame(SLOTS, [40 + step, 50, 60], [False] * 3)
        exact.frame(SLOTS, [40 + step, 50, 60], [False] * 3)
        assert made.codes.max() < 128 and not made.ended.any()
    logits, wanted = (r.buffers.logits[:3, :128] for r in (mine, exact))
    assert (logits - wanted).norm() > 1e-3 * wanted.norm(), "the weights are exact"
    assert mine.weights.num_bytes < 0.75 * exact.weights.num_bytes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_stays_near_fp32(model: Model, dtype: torch.dtype) -> None:
    exact, mine = runner(model), runner(model, dtype=dtype)
    opened(model, exact, mine)
    for each in (exact, mine):
        each.frame(SLOTS, [40, 50, 60], [False] * 3)
    wanted, got = (r.buffers.logits[:3, :128].float() for r in (exact, mine))
    assert (got - wanted).norm() < (3e-3 if dtype == torch.float16 else 2e-2) * wanted.norm()
    codes = np.random.default_rng(0).integers(0, 128, (3, 2, 16)).astype(np.int16)
    clean, pcm = (r.launch_codec(SLOTS, codes).result() for r in (exact, mine))
    noise = np.square(clean.pcm.astype(np.float64) - pcm.pcm).mean()
    snr_db = 10 * np.log10(np.square(clean.pcm.astype(np.float64)).mean() / noise)
    assert snr_db > (45 if dtype == torch.float16 else 28) and not pcm.broken.any()


class OnDevice(TorchDispatchMode):
    """Lets pass only what a graph can capture: no tensor of the host, nothing to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        name = func.overloadpacket.__name__
        assert name not in WAITS, name
        for leaf in tree_leaves((args, kwargs or {})):
            assert not isinstance(leaf, torch.Tensor) or leaf.device.type == "meta", name
        return func(*args, **(kwargs or {}))


class Clock:
    """Two events 10 ms apart, on no device."""

    def __init__(self, enable_timing: bool) -> None:
        pass

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "Clock") -> float:
        return 10.0


def test_batches_are_timed_where_graphs_are_off(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay is then the body itself: it writes tensors that only inference mode may write."""
    mine = runner(model, capture=False)
    monkeypatch.setattr(cuda_runner, "DeviceEvent", Clock)
    monkeypatch.setattr(mine, "_on_device", True)
    assert not torch.is_inference_mode_enabled()
    costs = mine.costs()
    assert costs.frame_s(4) == pytest.approx(0.002, rel=0.1)
    assert costs.codec_s(8) == pytest.approx(0.002, rel=0.1)


@pytest.mark.slow
def test_bodies_need_nothing_of_the_host_while_they_run(model: Model) -> None:
    """Over tensors without memory: a value the host reads, or brings, would show."""
    config = replace(
        model.config, talker=replace(model.config.talker, num_layers=1),
        predictor=replace(model.config.predictor, num_layers=1),
    )  # fmt: skip

    def bare(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
        return {name: torch.empty(size, device="meta") for name, size in shapes.items()}

    main = bare(talker_shapes(config) | code_predictor_shapes(config))
    frame = fold_frame(config, main, SIZES.max_positions, torch.float16)
    codec = fold_codec(config.codec, bare(codec_shapes(config.codec)), torch.float16)
    mine = CudaRunner(frame, codec, SIZES, GRAPHS, TORCH)
    body = FrameBody(frame, mine.talker_state, mine.buffers, 4)
    # All 16 codebooks do what the first two do.
    body._predict = partial(two_codebooks, body)  # type: ignore[method-assign]
    prompts = PromptBody(frame, mine.talker_state, mine.buffers, 16)
    for each in (body, prompts, mine.codec_replays[4, 2][1]):
        with torch.inference_mode(), OnDevice() as mode:
            each.run()
        assert mode.count > 20


def two_codebooks(body: FrameBody) -> None:
    pairs = body._buffers.pairs[:8]
    body._choose(0, body._buffers.logits[:4], pairs.view(4, 2, -1)[:, 1], None)
    body._pass(pairs, position=0, new_rows=2)
    body._head(1, pairs.view(4, 2, -1)[:, 1])

"""The captured runner's code on a CPU, frame for frame and sample for sample with the eager one."""

import numpy as np
import pytest
import torch

from playhead.engine.cuda_runner import CudaRunner
from playhead.engine.cuda_state import StateSizes
from playhead.engine.cuda_weights import fold_codec, fold_frame
from playhead.engine.eager_runner import EagerRunner
from playhead.engine.errors import DeviceFault
from playhead.engine.graphs import GraphSizes
from playhead.engine.messages import Sampling
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.units import FRAME_SAMPLES
from tests.kernels.interpreter import ON_DEVICE

pytestmark = pytest.mark.skipif(
    ON_DEVICE,
    reason="the tiny heads are narrower than a matrix instruction; gpu_spike checks there",
)
SETTINGS = (
    Sampling(repetition_penalty=1.5),
    Sampling(temperature=0.0, predictor_top_p=0.6, predictor_top_k=0),
)
SIZES = StateSizes(max_streams=4, segment_frames=32, prompt_positions=64, prefix_entries=2)
GRAPHS = GraphSizes(frame_batches=(2,), codec_frames=(1,), prompt_rows=(16,),
                    max_codec_streams=1)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("tiny")
    return load_model(write_checkpoint(folder, "tiny", dtype=torch.float32))


def captured(model: Model) -> CudaRunner:
    """Build the runner under test from the same files."""
    config = model.config
    frame_weights = fold_frame(config, model.main_weights(), SIZES.max_positions, torch.float32)
    codec = fold_codec(config.codec, model.codec_weights(), torch.float32)
    return CudaRunner(frame_weights, codec, SIZES, GRAPHS)


@pytest.fixture(scope="module")
def runners(model: Model) -> tuple[EagerRunner, CudaRunner]:
    return EagerRunner(model, SIZES.max_streams, SIZES.segment_frames), captured(model)


def prompt(model: Model, voice: str, body: tuple[int, ...] = ()) -> Prompt:
    mode = "full" if body else "streaming"
    return build_prompt(
        model, voice=voice, language="auto", instruct=None, text_mode=mode, body=body
    )


@pytest.mark.slow
def test_frames_segments_and_samples_match_the_eager_runner(
    model: Model, runners: tuple[EagerRunner, CudaRunner]
) -> None:
    """fp32: the same codes in sampled and greedy rows, samples within one step of 16 bits."""
    slots, eager, mine = [3, 1], *runners
    before, codes, wanted_pcm, pcm = mine.captures, [], [], []
    for runner in runners:
        runner.open(3, prompt(model, "ryan"), model.resolve_sampling(SETTINGS[0]), seed=2**33 + 5)
        runner.open(1, prompt(model, "eric", (5, 6)), model.resolve_sampling(SETTINGS[1]), seed=1)
        runner.prefill(slots)
    for step in range(3):
        if step == 2:  # a new segment, from a stored prefix: noise counter and penalty go on
            for runner in runners:
                runner.restart(3, prompt(model, "ryan"))
                runner.prefill([3])
        ids, may_end = [40 + step, 50 + step], [False, True]
        wanted = eager.frame(slots, ids, may_end)
        flight = mine.launch_frame(slots, ids, may_end)
        assert np.array_equal(flight.result().codes, wanted.codes), step
        assert flight.ready() and not flight.result().ended.any()
        codes.append(wanted.codes)
    pair = np.stack([frame[0] for frame in codes], 0)[None]
    for part in (pair[:, :1], pair[:, 1:]):
        wanted_pcm.append(eager.launch_codec([3], part).result().pcm)
        result = mine.launch_codec([3], part).result()
        assert not result.broken.any()
        pcm.append(result.pcm.copy())
    assert np.abs(wanted_pcm[1]).max() > 3_000
    for got, expected in zip(pcm, wanted_pcm, strict=True):
        np.testing.assert_allclose(got, expected, atol=1)
    assert mine.captures == before


def test_every_codec_graph_has_room_for_its_flags(model: Model) -> None:
    """Three streams take graphs of four: PCM and flags of the largest must fit their record."""
    graphs = GraphSizes((1,), (1, 2), (16,), max_codec_streams=3)
    weights = fold_frame(model.config, model.main_weights(), SIZES.max_positions, torch.float32)
    codec = fold_codec(model.config.codec, model.codec_weights(), torch.float32)
    runner = CudaRunner(weights, codec, SIZES, graphs)
    assert (4, 2) in runner.codec_replays
    for (streams, frames), (_, body) in runner.codec_replays.items():
        assert len(body.record) == streams * frames * FRAME_SAMPLES + streams
        assert len(body._broken) == streams


def test_a_fourth_join_waits_until_the_device_has_read_the_first(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are staged in a ring of four: none is overwritten while it may still be read."""
    runner, waited = captured(model), []
    monkeypatch.setattr(
        runner._joins, "join", lambda slots: waited.append(f"join {slots[0]}") or []
    )
    monkeypatch.setattr(runner._joins, "references", lambda slots: {})

    class Mark:
        def __init__(self, number: int) -> None:
            self._number = number

        def synchronize(self) -> None:
            waited.append(f"wait {self._number}")

    numbers = iter(range(1, 9))
    monkeypatch.setattr(runner, "_mark", lambda recorder: Mark(next(numbers)))
    for slot in range(1, 6):
        runner.prefill([slot])
    assert waited == ["join 1", "join 2", "join 3", "wait 1", "join 4", "wait 2", "join 5"]


def test_warming_leaves_no_stream_behind(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    runner, run = captured(model), []
    monkeypatch.setattr(runner, "_run_prompt", lambda *rows: run.append(rows))
    free = runner.talker_state.pool.num_free
    runner._warm()
    # All rows first; then the constant row is copied, so that its launch has been made too.
    assert run == [(1, 0, 2), (1, 1, 2)]
    assert runner.talker_state.pool.num_free == free
    assert not runner._joined and not runner._joins.starts


class Broken:
    """A stream of a device that has broken, and what is launched on it."""

    def wait_event(self, event: object) -> None:
        self()

    def __call__(self) -> None:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize("call", ["codec", "prefill", "costs"])
def test_a_device_that_breaks_outside_a_replay_is_told_as_such(
    model: Model, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """At the codec's wait for a join, behind a reference too, and where batches are timed."""
    runner = captured(model)
    monkeypatch.setattr(runner._codec_recorder, "stream", Broken())
    monkeypatch.setattr(runner, "_on_device", True)
    monkeypatch.setattr(runner._joins, "join", lambda slots: [])
    monkeypatch.setattr(runner._joins, "references", lambda slots: {1: None})
    monkeypatch.setattr(runner, "_mark", lambda recorder: object())
    runner.frame_replays[GRAPHS.frame_batches[0]] = Broken()
    runner._joined[1] = object()  # type: ignore[assignment]
    with pytest.raises(DeviceFault, match="illegal memory access"):
        if call == "codec":
            runner.launch_codec([1], np.zeros((1, 1, 16), np.int16))
        elif call == "prefill":
            runner.prefill([1])
        else:
            runner.costs()

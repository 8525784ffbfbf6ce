"""In-context clones on the captured runner, on a CPU: rows, codes and sound of the eager runner."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from playhead.engine.cuda_joins import Joins, SlotStart
from playhead.engine.cuda_reference import References
from playhead.engine.cuda_runner import CudaRunner
from playhead.engine.cuda_state import CodecState, StateSizes, TalkerState
from playhead.engine.cuda_weights import fold_codec, fold_frame
from playhead.engine.eager_runner import EagerRunner
from playhead.engine.graphs import GraphSizes, Recorder
from playhead.engine.models.greedy import GREEDY
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import Clone, Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.kernels.launches import TORCH
from tests.kernels.interpreter import ON_DEVICE

pytestmark = pytest.mark.skipif(
    ON_DEVICE,
    reason="the tiny heads are narrower than a matrix instruction; gpu_spike checks there",
)
SIZES = StateSizes(max_streams=2, segment_frames=16, prompt_positions=48, prefix_entries=2)
GRAPHS = GraphSizes(frame_batches=(2,), codec_frames=(1, 4), prompt_rows=(16,), max_codec_streams=2)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder: Path = tmp_path_factory.mktemp("tiny-base")
    yield load_model(write_checkpoint(folder, "tiny-base", dtype=torch.float32))


def clone(model: Model, num_frames: int) -> Clone:
    """Return a voice in context of as many frames; none: the vector alone."""
    draw = np.random.RandomState(2)
    speaker = draw.normal(size=model.config.talker.hidden).astype(np.float32)
    codes = draw.randint(0, model.config.num_codes, (num_frames, 16)).astype(np.int16)
    return Clone(speaker, codes, "hello") if num_frames else Clone(speaker)


def prompt(model: Model, num_frames: int) -> Prompt:
    return build_prompt(
        model, voice=None, language="auto", instruct=None, text_mode="streaming",
        body=(5, 6), clone=clone(model, num_frames),
    )  # fmt: skip


def test_rows_when_voices_in_and_out_of_context_join(model: Model) -> None:
    frame = fold_frame(model.config, model.main_weights(), SIZES.max_positions, torch.float32)
    codec = fold_codec(model.config.codec, model.codec_weights(), torch.float32)
    talker = TalkerState(frame, SIZES)
    recorder = Recorder(torch.device("cpu"))
    joins = Joins(frame, talker, CodecState(codec, SIZES.num_slots), recorder)
    sampling = model.resolve_sampling(GREEDY)
    prompts = [prompt(model, 9), prompt(model, 0)]
    for slot, each in enumerate(prompts, start=1):
        joins.starts[slot] = SlotStart(each, sampling, seed=0, new_stream=True)
    with torch.inference_mode():
        assert list(joins.references([1, 2])) == [1]
        assert joins.join([1, 2]) == [(1, 0, prompts[0].num_rows), (2, 0, prompts[1].num_rows)]
        assert not joins.references([1, 2])
        for slot, each in enumerate(prompts, start=1):
            torch.testing.assert_close(talker.carry[slot], model.talker.start_row(each))
            for first, last in ((0, each.num_rows), (4, each.num_rows - 2)):
                ours = joins.prompt_rows(slot, first, last)
                torch.testing.assert_close(ours, model.talker.prompt_rows(each, first, last))
    assert not torch.equal(talker.carry[1], talker.carry[2])


def test_speech_when_it_goes_on_from_a_reference(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fp32, torch launches: codes equal, samples within 1; a known reference is not run again."""
    frame = fold_frame(model.config, model.main_weights(), SIZES.max_positions, torch.float32)
    codec = fold_codec(model.config.codec, model.codec_weights(), torch.float32)
    mine = CudaRunner(frame, codec, SIZES, GRAPHS, TORCH)
    eager = EagerRunner(model, SIZES.max_streams, SIZES.segment_frames)
    run: list[int] = []
    size = References._size
    monkeypatch.setattr(
        References, "_size", lambda self, left: (run.append(left), size(self, left))[1]
    )
    for slot, num_frames in ((1, 14), (2, 14), (1, 0)):  # longer than the codec's window
        spoken = []
        for each in (eager, mine):
            each.open(slot, prompt(model, num_frames), model.resolve_sampling(GREEDY), seed=0)
            each.prefill([slot])
            made = [each.frame([slot], [40], [False]).codes for _ in range(5)]
            codes = np.stack(made, 1)
            spoken.append((codes, each.launch_codec([slot], codes).result().pcm.astype(int)))
            each.close(slot)
        (wanted_codes, wanted), (codes, pcm) = spoken
        assert np.array_equal(codes, wanted_codes)
        assert np.abs(wanted).max() > 1_000 and np.abs(pcm - wanted).max() <= 1
    assert run == [14, 10, 6, 2, 1]

"""Clones and designed voices on the captured runner, on a CPU: what the eager runner makes."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from playhead.engine.cuda_joins import Joins, SlotStart
from playhead.engine.cuda_reference import References
from playhead.engine.cuda_runner import CudaRunner
from playhead.engine.cuda_state import PREFIX_PAGES, CodecState, StateSizes, TalkerState
from playhead.engine.cuda_weights import fold_codec, fold_frame
from playhead.engine.eager_runner import EagerRunner
from playhead.engine.graphs import GraphSizes, Recorder
from playhead.engine.messages import Sampling
from playhead.engine.models.greedy import GREEDY
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import Clone, Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.kernels.attention import PAGE
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


@pytest.mark.parametrize(
    ("positions", "prompt_rows", "times"),
    [(SIZES.prompt_positions, (4, 16), 3), (192, (64,), 12)],
    ids=["several pieces", "longer than an entry of the store"],
)
def test_codes_when_a_description_is_long(
    tmp_path: Path, positions: int, prompt_rows: tuple[int, ...], times: int
) -> None:
    """Its rows run in captured pieces, the last one part empty; the second time they are copied,
    into whatever pages the slot has then."""
    made = write_checkpoint(tmp_path, "tiny-voicedesign", dtype=torch.float32)
    model = load_model(made)
    sizes = replace(SIZES, prompt_positions=positions, usual_prompt_positions=positions)
    frame = fold_frame(model.config, model.main_weights(), sizes.max_positions, torch.float32)
    codec = fold_codec(model.config.codec, model.codec_weights(), torch.float32)
    graphs = GraphSizes((2,), (1,), prompt_rows=prompt_rows, max_codec_streams=1)
    mine = CudaRunner(frame, codec, sizes, graphs, TORCH)
    eager = EagerRunner(model, sizes.max_streams, sizes.segment_frames)
    said = build_prompt(
        model, voice=None, language="auto", instruct="a test of speech, you hear that. " * times,
        text_mode="streaming",
    )  # fmt: skip
    assert 2 * prompt_rows[-1] < said.num_rows < positions
    assert said.num_rows % prompt_rows[-1] not in (0, *prompt_rows)
    assert (said.num_constant_rows > PREFIX_PAGES * PAGE) == (positions == 192)
    codes, rows = [], []
    for slot, runner in ((1, eager), (1, mine), (2, mine)):
        rows.append(runner.open(slot, said, model.resolve_sampling(GREEDY), seed=0))
        runner.prefill([slot])
        codes.append(np.stack([runner.frame([slot], [40], [False]).codes for _ in range(6)]))
    assert rows == [said.num_rows, said.num_rows, 0]
    assert np.array_equal(codes[1], codes[0]) and np.array_equal(codes[2], codes[0])
    assert len(np.unique(codes[0][:, 0], axis=0)) > 1, "one frame again and again proves little"


NUM_VOICES = 16


class Crowd:
    """A captured runner of one batch size, so that a row computes the same whoever is beside it."""

    def __init__(self, model: Model) -> None:
        sizes = StateSizes(NUM_VOICES, segment_frames=8, prompt_positions=48, prefix_entries=4)
        graphs = GraphSizes((NUM_VOICES,), (1, 4), (16,), max_codec_streams=NUM_VOICES)
        frame = fold_frame(model.config, model.main_weights(), sizes.max_positions, torch.float32)
        codec = fold_codec(model.config.codec, model.codec_weights(), torch.float32)
        self.runner = CudaRunner(frame, codec, sizes, graphs, TORCH)
        self.model = model

    def prompt(self, voice: int) -> Prompt:
        """Every second voice is in context, each with a reference of its own length."""
        draw = np.random.RandomState(voice)
        speaker = draw.normal(size=self.model.config.talker.hidden).astype(np.float32)
        codes = draw.randint(0, self.model.config.num_codes, (3 + voice, 16)).astype(np.int16)
        made = Clone(speaker, codes, "hello") if voice % 2 else Clone(speaker)
        return build_prompt(
            self.model, voice=None, language="auto", instruct=None, text_mode="streaming",
            body=(5, 6), clone=made,
        )  # fmt: skip

    def digest(self, slot: int, prompt: Prompt) -> str:
        """Tell a slot's keys and values of its prompt, and its codec behind the reference."""
        t, pages = self.runner.talker_state, -(-prompt.num_rows // PAGE)
        held = t.cache[:, t.pool.table[slot, :pages].tolist()].transpose(1, 3).flatten(3, 4)
        found = hashlib.sha256(held[:, :, :, : prompt.num_rows].numpy().tobytes())
        if prompt.reference is not None:
            found.update(self.runner._codec.read(slot).numpy().tobytes())
        return found.hexdigest()

    def speak(self, voices: list[int], slots: list[int]) -> "dict[int, tuple[str, str, int]]":
        """Return state, codes and loudest sample of each voice."""
        prompts = {voice: self.prompt(voice) for voice in voices}
        sampling = self.model.resolve_sampling(Sampling())
        for voice, slot in zip(voices, slots, strict=True):
            self.runner.open(slot, prompts[voice], sampling, seed=voice)
        self.runner.prefill(slots)
        states = [self.digest(s, prompts[v]) for v, s in zip(voices, slots, strict=True)]
        ids, may_end = [40] * len(slots), [False] * len(slots)
        codes = np.stack([self.runner.frame(slots, ids, may_end).codes for _ in range(4)], 1)
        loudest = np.abs(self.runner.launch_codec(slots, codes).result().pcm.astype(int)).max(1)
        for slot in slots:
            self.runner.close(slot)
        told = zip(states, codes, loudest.tolist(), strict=True)
        return dict(
            zip(voices, ((state, c.tobytes().hex(), loud) for state, c, loud in told), strict=True)
        )


@pytest.mark.slow
def test_sixteen_clones_at_once_are_what_each_is_alone(model: Model) -> None:
    """More voices than the prefix store has room for; then some are stored, and some cancelled."""
    voices, draw = list(range(NUM_VOICES)), np.random.RandomState(4)
    alone: dict[int, tuple[str, str, int]] = {}
    solo, crowd = Crowd(model), Crowd(model)
    for voice in voices:
        solo.runner._codec.ring.zero_()  # what nobody reads yet is part of the digest too
        alone |= solo.speak([voice], [1])
    assert len({state for state, _, _ in alone.values()}) == NUM_VOICES, "equal voices prove little"
    assert len({codes for _, codes, _ in alone.values()}) == NUM_VOICES
    for num in (NUM_VOICES, NUM_VOICES, 11, NUM_VOICES):
        some = draw.permutation(voices)[:num].tolist()
        slots = (1 + draw.permutation(NUM_VOICES)[:num]).tolist()
        if num == 11:  # opened and joined, then gone before a frame
            for voice, slot in zip(some, slots, strict=True):
                prompt = crowd.prompt(voice)
                crowd.runner.open(slot, prompt, model.resolve_sampling(GREEDY), seed=9)
            crowd.runner.prefill(slots[:5])
            for slot in slots:
                crowd.runner.close(slot)
        for voice, (state, codes, loud) in crowd.speak(some, slots).items():
            assert state == alone[voice][0], f"state of voice {voice}"
            assert codes == alone[voice][1], f"codes of voice {voice}"
            assert abs(loud - alone[voice][2]) <= 1 and loud > 100

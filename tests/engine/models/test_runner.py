"""Batches and slots: a row's codes depend on its own stream alone."""

from pathlib import Path

import numpy as np
import pytest
import torch

from playhead.engine.eager_runner import EagerRunner
from playhead.engine.errors import InputError, TextTooLong, UnknownLanguage, UnknownVoice
from playhead.engine.messages import Sampling
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.runner import PROMPT_POSITIONS

NUM_FRAMES = 12
SETTINGS = {
    "greedy": Sampling(temperature=0.0, predictor_temperature=0.0),
    "sampled": Sampling(),
    "narrow": Sampling(temperature=0.8, top_k=5, predictor_top_p=0.7, predictor_top_k=0),
    "nucleus": Sampling(top_k=0, top_p=0.5, repetition_penalty=1.3),
}
VOICES = ("ryan", "eric", "serena", "aiden")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("tiny")
    return load_model(write_checkpoint(folder, "tiny", dtype=torch.float32))


@pytest.fixture
def runner(model: Model) -> EagerRunner:
    return EagerRunner(model, max_streams=5, max_segment_frames=64, num_threads=1)


def prompt(model: Model, row: int = 0) -> Prompt:
    return build_prompt(
        model, voice=VOICES[row], language="auto", instruct="fast" * row, text_mode="streaming"
    )


def start(runner: EagerRunner, slot: int, row: int, sampling: Sampling, seed: int) -> None:
    runner.open(slot, prompt(runner.model, row), runner.model.resolve_sampling(sampling), seed)
    runner.prefill([slot])


def frames(runner: EagerRunner, slots: list[int], num_frames: int, first: int = 0) -> np.ndarray:
    """Return codes [num_frames, B, 16] of text rows that depend on slot and frame."""
    made = []
    for frame in range(first, first + num_frames):
        ids = [(40 * slot + frame) % 200 for slot in slots]
        made.append(runner.frame(slots, ids, [False] * len(slots)).codes)
    return np.stack(made)


@pytest.mark.parametrize("name", SETTINGS)
def test_codes_when_rows_share_a_batch(runner: EagerRunner, name: str) -> None:
    slots = [2, 5, 1, 3]
    alone = []
    for row, slot in enumerate(slots):
        start(runner, slot, row, SETTINGS[name], seed=100 + row)
        alone.append(frames(runner, [slot], row + NUM_FRAMES)[row:, 0])
    for row, slot in enumerate(slots):  # rows of different age: row frames ahead
        start(runner, slot, row, SETTINGS[name], seed=100 + row)
        frames(runner, [slot], row) if row else None
    together = []
    for frame in range(NUM_FRAMES):
        ids = [(40 * slot + row + frame) % 200 for row, slot in enumerate(slots)]
        together.append(runner.frame(slots, ids, [False] * 4).codes)
    assert (np.stack(together, 1) == np.stack(alone)).all()


def test_codes_when_settings_are_mixed_in_a_batch(runner: EagerRunner) -> None:
    alone = []
    for slot, sampling in enumerate(SETTINGS.values(), start=1):
        start(runner, slot, 0, sampling, seed=slot)
        alone.append(frames(runner, [slot], NUM_FRAMES)[:, 0])
    for slot, sampling in enumerate(SETTINGS.values(), start=1):
        start(runner, slot, 0, sampling, seed=slot)
    assert (frames(runner, [1, 2, 3, 4], NUM_FRAMES) == np.stack(alone, 1)).all()


def test_codes_when_seed_differs(runner: EagerRunner) -> None:
    start(runner, 1, 0, SETTINGS["sampled"], seed=1)
    first = frames(runner, [1], NUM_FRAMES)
    start(runner, 1, 0, SETTINGS["sampled"], seed=1 + (1 << 32))
    assert (frames(runner, [1], NUM_FRAMES) != first).any()


def test_codes_when_slot_was_used_before(runner: EagerRunner) -> None:
    sampling = Sampling(repetition_penalty=2.0)
    start(runner, 1, 0, sampling, seed=4)
    fresh = frames(runner, [1], NUM_FRAMES)
    start(runner, 1, 2, SETTINGS["sampled"], seed=9)
    frames(runner, [1], 30)
    start(runner, 1, 0, sampling, seed=4)
    assert (frames(runner, [1], NUM_FRAMES) == fresh).all()


def test_samples_when_slot_was_used_before(runner: EagerRunner) -> None:
    codes = np.arange(48, dtype=np.int16).reshape(1, 3, 16)
    start(runner, 1, 0, SETTINGS["greedy"], seed=0)
    fresh = runner.codec([1], codes)
    runner.codec([1], codes[:, ::-1])
    start(runner, 1, 0, SETTINGS["greedy"], seed=0)
    assert (runner.codec([1], codes) == fresh).all()


def test_restart_when_segment_ends(runner: EagerRunner) -> None:
    codes = np.arange(64, dtype=np.int16).reshape(1, 4, 16)
    start(runner, 1, 0, SETTINGS["sampled"], seed=4)
    start(runner, 2, 0, SETTINGS["sampled"], seed=4)
    first = frames(runner, [1], NUM_FRAMES)
    unbroken = runner.codec([2], codes)
    runner.codec([1], codes[:, :2])
    runner.restart(1, prompt(runner.model))
    runner.prefill([1])
    continued = runner.codec([1], codes[:, 2:])
    np.testing.assert_allclose(continued[0], unbroken[0, 2 * 1920 :], atol=1e-5)
    again = frames(runner, [1], NUM_FRAMES)
    assert (again != first).any(), "the frame counter goes on: the draws are new"


def test_codes_when_prefix_is_cached(model: Model) -> None:
    cached = EagerRunner(model, 2, 64, num_threads=1)
    bare = EagerRunner(model, 2, 64, num_threads=1, prefix_cache_bytes=0)
    made = []
    for runner, slots in ((cached, [1, 2]), (bare, [2])):
        for slot in slots:
            start(runner, slot, 1, SETTINGS["greedy"], seed=0)
            ids = list(range(NUM_FRAMES))
            made.append([runner.frame([slot], [i], [False]).codes for i in ids])
    assert (np.array(made[0]) == np.array(made[1])).all()
    assert (np.array(made[0]) == np.array(made[2])).all()


def test_full_text_prompt_when_prefix_is_cached(model: Model) -> None:
    made = []
    for limit_bytes in (0, 1 << 20):
        runner = EagerRunner(model, 1, 64, num_threads=1, prefix_cache_bytes=limit_bytes)
        for body in ([7, 8, 9], [50, 51]):
            full = build_prompt(
                model, voice="ryan", language="german", instruct=None, text_mode="full", body=body
            )
            runner.open(1, full, model.resolve_sampling(SETTINGS["greedy"]), seed=0)
            runner.prefill([1])
            pad = model.config.tts_pad_id
            made.append([runner.frame([1], [pad], [False]).codes for _ in range(6)])
    assert (np.array(made[:2]) == np.array(made[2:])).all()
    assert (np.array(made[0]) != np.array(made[1])).any()


def test_open_when_prompt_is_too_long(runner: EagerRunner) -> None:
    model = runner.model
    full = build_prompt(
        model, voice=None, language="auto", instruct=None, text_mode="full",
        body=[5] * PROMPT_POSITIONS,
    )  # fmt: skip
    with pytest.raises(TextTooLong, match=f"allowed are {PROMPT_POSITIONS}"):
        runner.open(1, full, model.resolve_sampling(Sampling()), seed=0)


def test_prompt_when_voice_or_language_is_unknown(model: Model) -> None:
    with pytest.raises(UnknownVoice, match=r"'nobody' is unknown; choose one of serena, .*dylan"):
        build_prompt(model, voice="nobody", language="auto", instruct=None, text_mode="streaming")
    with pytest.raises(UnknownLanguage, match=r"'klingon' is unknown; choose one of auto, english"):
        build_prompt(model, voice=None, language="klingon", instruct=None, text_mode="streaming")


def test_prompt_when_small_model_is_instructed(tmp_path: Path) -> None:
    small = load_model(write_checkpoint(tmp_path, "tiny-one-width"))
    with pytest.raises(InputError, match=r"0\.6B custom-voice model was not trained to follow"):
        build_prompt(small, voice=None, language="auto", instruct="low", text_mode="streaming")

"""The model against the reference package: goldens made greedily in fp32 (tests/data/goldens)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from playhead.engine.eager_runner import EagerRunner
from playhead.engine.messages import Sampling
from playhead.engine.models.code_predictor import CodePredictor
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.models.talker import Talker

GOLDENS = Path(__file__).parents[2] / "data" / "goldens"
RECORD: dict[str, Any] = json.loads((GOLDENS / "reference.json").read_text(encoding="utf-8"))
ARRAYS = load_file(GOLDENS / "reference.safetensors")
GREEDY = Sampling(temperature=0.0, predictor_temperature=0.0, repetition_penalty=1.05)
NUM_FRAMES: int = RECORD["num_frames"]
CASES: dict[str, dict[str, str]] = RECORD["cases"]
TOLERANCE = 1e-4
"""Largest difference allowed: fp32 sums in another order differ by about 1e-5."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("checkpoints")
    shapes = {case["shape"] for case in CASES.values()}
    return {s: load_model(write_checkpoint(folder / s, s, dtype=torch.float32)) for s in shapes}


def body_of(name: str) -> list[int]:
    """Cut the text ids out of the reference's wrapped ids: 3 before, 5 behind."""
    ids: list[int] = ARRAYS[f"{name}.input_ids"].tolist()
    return ids[3:-5]


def prompt_of(model: Model, name: str) -> Prompt:
    case = CASES[name]
    return build_prompt(
        model,
        voice=case["voice"],
        language=case["language"],
        instruct=case["instruct"],
        text_mode="full" if case["mode"] == "full" else "streaming",
        body=body_of(name),
    )


def text_id(model: Model, name: str, frame: int) -> int:
    """Return the text row of a frame: body, end of text once, then padding."""
    rows = [] if CASES[name]["mode"] == "full" else [*body_of(name), model.config.tts_eos_id]
    return rows[frame] if frame < len(rows) else model.config.tts_pad_id


def speak(model: Model, name: str, num_frames: int) -> np.ndarray:
    """Return the codes of at most num_frames frames, fewer when the model ends."""
    runner = EagerRunner(model, max_streams=1, max_segment_frames=64, num_threads=1)
    runner.open(1, prompt_of(model, name), model.resolve_sampling(GREEDY), seed=0)
    runner.prefill([1])
    frames = []
    for frame in range(num_frames):
        result = runner.frame([1], [text_id(model, name, frame)], [True])
        if result.ended[0]:
            break
        frames.append(result.codes[0])
    return np.stack(frames)


@pytest.mark.parametrize("name", CASES)
def test_prompt_rows_when_laid_out(models: dict[str, Model], name: str) -> None:
    model = models[CASES[name]["shape"]]
    prompt = prompt_of(model, name)
    with torch.inference_mode():
        rows = model.talker.prompt_rows(prompt, 0, prompt.num_rows)
        first = torch.tensor([text_id(model, name, 0)])
        start = model.talker.codec_rows[model.config.codec_ids.bos]
        rows = torch.cat([rows, model.talker.text_rows(first) + start])
    wanted = ARRAYS[f"{name}.prompt"]
    assert rows.shape == wanted.shape
    torch.testing.assert_close(rows.clone(), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_codes_and_logits_when_greedy(
    models: dict[str, Model], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models[CASES[name]["shape"]]
    talker_logits: list[Tensor] = []
    predictor_logits: list[Tensor] = []
    scores, run = Talker.scores, CodePredictor.run

    def spying_scores(self: Talker, hidden: Tensor) -> Tensor:
        talker_logits.append(scores(self, hidden).clone())
        return talker_logits[-1].clone()

    def spying_run(self: CodePredictor, hidden: Tensor, first: Tensor, choose: Any) -> Tensor:
        def spying_choose(logits: Tensor, book: int) -> Tensor:
            predictor_logits.append(logits.clone())
            chosen: Tensor = choose(logits, book)
            return chosen

        return run(self, hidden, first, spying_choose)

    monkeypatch.setattr(Talker, "scores", spying_scores)
    monkeypatch.setattr(CodePredictor, "run", spying_run)
    codes = speak(model, name, NUM_FRAMES)
    assert (codes == ARRAYS[f"{name}.codes"].numpy()).all()
    ours = torch.cat(talker_logits)[RECORD["logit_steps"]]
    torch.testing.assert_close(ours, ARRAYS[f"{name}.logits"], atol=TOLERANCE, rtol=0)
    books = torch.cat(predictor_logits).view(NUM_FRAMES, 15, -1)[RECORD["predictor_frames"]]
    torch.testing.assert_close(books, ARRAYS[f"{name}.predictor"], atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_samples_when_decoded_frame_by_frame(models: dict[str, Model], name: str) -> None:
    model = models[CASES[name]["shape"]]
    wanted = ARRAYS[f"{name}.pcm"].numpy()
    codes = ARRAYS[f"{name}.codes"].numpy()[: len(wanted) // 1920]
    runner = EagerRunner(model, max_streams=1, max_segment_frames=64, num_threads=1)
    samples = np.concatenate([runner.codec([1], frame[None, None])[0] for frame in codes])
    assert 0.1 < np.abs(wanted).max() < 1.0, "a clamped or silent golden hides differences"
    assert np.abs(samples - wanted).max() < TOLERANCE


@pytest.mark.parametrize("step", RECORD["end_steps"])
def test_end_of_speech_when_chosen_at_a_step(tmp_path: Path, step: int) -> None:
    row = ARRAYS[f"end{step}.row"]
    model = load_model(write_checkpoint(tmp_path, "tiny", dtype=torch.float32, eos_row=row))
    codes = speak(model, "streaming", NUM_FRAMES)
    assert len(codes) == step
    assert (codes == ARRAYS[f"end{step}.codes"].numpy()).all()


def test_end_of_speech_when_best_from_the_start(tmp_path: Path) -> None:
    row = ARRAYS["early.row"]
    model = load_model(write_checkpoint(tmp_path, "tiny", dtype=torch.float32, eos_row=row))
    codes = speak(model, "streaming", 8)
    wanted = ARRAYS["early.codes"].numpy()
    assert len(wanted) >= 2
    assert len(codes) == len(wanted)
    assert (codes == wanted).all()


def test_end_of_speech_when_text_is_open(tmp_path: Path) -> None:
    row = ARRAYS["end3.row"]
    model = load_model(write_checkpoint(tmp_path, "tiny", dtype=torch.float32, eos_row=row))
    runner = EagerRunner(model, max_streams=1, max_segment_frames=64, num_threads=1)
    runner.open(1, prompt_of(model, "streaming"), model.resolve_sampling(GREEDY), seed=0)
    runner.prefill([1])
    for frame in range(6):
        result = runner.frame([1], [text_id(model, "streaming", frame)], [False])
        assert not result.ended[0]

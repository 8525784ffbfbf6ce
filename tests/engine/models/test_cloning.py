"""Cloning and voice design against the reference package (tests/data/goldens, cloning.*)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from playhead.engine.errors import CheckpointError, InputError
from playhead.engine.models.cloning import make_clone
from playhead.engine.models.greedy import greedy_codes
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.prompt import Clone, Prompt, build_prompt
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.reference_audio import TAIL_S, read_reference
from tests.engine.test_reference_audio import encoded
from tests.voices import TRANSCRIPT, as_float, reference_wave

GOLDENS = Path(__file__).parents[2] / "data" / "goldens"
RECORD: dict[str, Any] = json.loads((GOLDENS / "cloning.json").read_text(encoding="utf-8"))
ARRAYS = load_file(GOLDENS / "cloning.safetensors")
CASES: dict[str, dict[str, Any]] = RECORD["cases"]
CLONES = [name for name, case in CASES.items() if case["voice"] is not None]
NUM_FRAMES: int = RECORD["num_frames"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("checkpoints")
    shapes = {case["shape"] for case in CASES.values()}
    return {s: load_model(write_checkpoint(folder / s, s, dtype=torch.float32)) for s in shapes}


def samples_of(voice: int, duration_s: float) -> torch.Tensor:
    return torch.from_numpy(as_float(reference_wave(voice, duration_s)))


def clone_of(model: Model, name: str) -> Clone | None:
    """Read the case's clone out of its waveform with our own encoders."""
    case = CASES[name]
    if case["voice"] is None:
        return None
    wave = as_float(reference_wave(case["voice"], case["reference_s"]))
    return make_clone(model, wave, case["transcript"] or "")


def prompt_of(model: Model, name: str) -> Prompt:
    case = CASES[name]
    return build_prompt(
        model,
        voice=None,
        language=case["language"],
        instruct=case["instruct"],
        text_mode=case["mode"],
        body=ARRAYS[f"{name}.input_ids"].tolist()[3:-5],
        clone=clone_of(model, name),
    )


def text_ids(model: Model, name: str, prompt: Prompt) -> list[int]:
    """Return the text ids of all frames: what the prompt left over, then padding."""
    rows = list(prompt.trailing_ids)
    if prompt.reference is None and CASES[name]["mode"] == "streaming":
        rows = [*ARRAYS[f"{name}.input_ids"].tolist()[3:-5], model.config.tts_eos_id]
    return (rows + [model.config.tts_pad_id] * NUM_FRAMES)[: max(NUM_FRAMES, len(rows))]


@pytest.mark.parametrize("name", CLONES)
def test_speaker_vector_when_read_from_a_reference(models: dict[str, Model], name: str) -> None:
    case = CASES[name]
    samples = samples_of(case["voice"], case["reference_s"])
    ours = models[case["shape"]].speaker_encoder.embed(samples)
    torch.testing.assert_close(ours.clone(), ARRAYS[f"{name}.speaker"], atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", [n for n in CLONES if CASES[n]["transcript"]])
def test_codes_when_read_from_a_reference(models: dict[str, Model], name: str) -> None:
    case = CASES[name]
    samples = samples_of(case["voice"], case["reference_s"])
    ours = models[case["shape"]].speech_encoder.encode(samples)
    assert torch.equal(ours, ARRAYS[f"{name}.ref_codes"].long())


def test_codes_and_vector_when_reference_is_longer_than_the_window(
    models: dict[str, Model],
) -> None:
    """12 s are 300 positions: a window of 250 would change the last frames."""
    case = RECORD["long"]
    model = models[case["shape"]]
    samples = samples_of(case["voice"], case["reference_s"])
    wanted = ARRAYS["long.ref_codes"].long()
    assert torch.equal(model.speech_encoder.encode(samples), wanted)
    assert len(wanted) == 150
    assert min(len(column.unique()) for column in wanted.T) > 5, "constant codes prove little"
    ours = model.speaker_encoder.embed(samples)
    torch.testing.assert_close(ours.clone(), ARRAYS["long.speaker"], atol=1e-4, rtol=0)


def test_reference_frames_when_its_end_changes(models: dict[str, Model]) -> None:
    encoder = models["tiny-base"].speech_encoder
    samples = samples_of(3, 4.0)
    codes = encoder.encode(samples)
    changed = samples.clone()
    changed[-1920:] = samples_of(4, 4.0)[-1920:] + 0.2
    after = encoder.encode(changed)
    assert torch.equal(after[:-1], codes[:-1])
    assert not torch.equal(after[-1], codes[-1])
    assert len(encoder.encode(samples[:1921])) == 2


def test_clone_when_its_reference_ends_inside_a_word(models: dict[str, Model]) -> None:
    """Silence follows in its codes, so that the new speech need not finish that word."""
    samples = as_float(reference_wave(3, 4.0))
    loud = np.abs(samples)
    cut = samples[: int(np.flatnonzero(loud > 0.5 * loud.max())[-1])]
    file = encoded((cut * 32768).astype(np.int16)[None], 24_000, "wav")
    read = read_reference(file, TRANSCRIPT)
    assert read.tail_samples == round(TAIL_S * 24_000), "its last sound is its end"
    model = models["tiny-base"]
    clone = make_clone(model, read.samples, TRANSCRIPT, read.tail_samples)
    bare = make_clone(model, read.samples, TRANSCRIPT)
    assert clone.codes is not None and bare.codes is not None
    whole = len(read.samples) // 1920
    assert len(clone.codes) == -(-(len(read.samples) + read.tail_samples) // 1920)
    assert (clone.codes[:whole] == bare.codes[:whole]).all(), "what it said is as it was"
    assert (clone.speaker == bare.speaker).all(), "the voice too"
    silence = np.zeros(12_000, np.float32)
    quiet = make_clone(model, np.concatenate([read.samples, silence]), TRANSCRIPT)
    assert (clone.codes == quiet.codes).all()


@pytest.mark.parametrize("name", CASES)
def test_prompt_rows_when_laid_out(models: dict[str, Model], name: str) -> None:
    model = models[CASES[name]["shape"]]
    prompt = prompt_of(model, name)
    with torch.inference_mode():
        rows = model.talker.prompt_rows(prompt, 0, prompt.num_rows)
        first = torch.tensor(text_ids(model, name, prompt)[:1])
        last = model.talker.text_rows(first) + model.talker.start_row(prompt)
        rows = torch.cat([rows, last])
        cut = prompt.num_rows // 2
        halves = [(0, cut), (cut, prompt.num_rows)]
        pieces = torch.cat([model.talker.prompt_rows(prompt, *half) for half in halves])
    wanted, step = ARRAYS[f"{name}.prompt"], RECORD["prompt_step"]
    torch.testing.assert_close(rows[:, ::step].clone(), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(pieces, rows[:-1])


@pytest.mark.parametrize("name", CASES)
def test_codes_when_greedy(models: dict[str, Model], name: str) -> None:
    model = models[CASES[name]["shape"]]
    prompt = prompt_of(model, name)
    codes = greedy_codes(model, prompt, text_ids(model, name, prompt), NUM_FRAMES)
    assert codes.shape == (NUM_FRAMES, 16)
    assert (codes == ARRAYS[f"{name}.codes"].numpy()).all()
    assert len(codes) >= 32


def test_cases_cover_text_shorter_and_longer_than_the_reference(models: dict[str, Model]) -> None:
    left = {
        name: len(prompt_of(models[CASES[name]["shape"]], name).trailing_ids)
        for name, case in CASES.items()
        if case["transcript"] and case["mode"] == "streaming"
    }
    assert min(left.values()) == 0
    assert max(left.values()) > 3


def test_constant_key_when_only_the_clone_differs(models: dict[str, Model]) -> None:
    model = models["tiny-base"]
    clones = [
        clone_of(model, name) for name in ("vector", "vector_full", "context", "context_full")
    ]
    keys = set()
    for clone in clones:
        for mode in ("streaming", "full"):
            prompt = build_prompt(
                model, voice=None, language="auto", instruct=None, text_mode=mode,
                body=(5, 6, 7), clone=clone,
            )  # fmt: skip
            again = build_prompt(
                model, voice=None, language="auto", instruct=None, text_mode=mode,
                body=(5, 6, 9), clone=clone,
            )  # fmt: skip
            assert prompt.constant_key == again.constant_key
            n = prompt.num_constant_rows
            with torch.inference_mode():
                ours, others = (model.talker.prompt_rows(p, 0, n) for p in (prompt, again))
            assert torch.equal(ours, others), "rows under one key must be equal"
            keys.add(prompt.constant_key)
    assert len(keys) == 2 + 2 * 2, "a vector's prefix serves both modes, a context's only its own"


def test_prompt_when_clone_and_checkpoint_do_not_match(models: dict[str, Model]) -> None:
    clone = clone_of(models["tiny-base"], "vector")
    with pytest.raises(InputError, match=r"clone of 64 values, which .*voice_design, 64\) cannot"):
        build_prompt(
            models["tiny-voicedesign"], voice=None, language="auto", instruct=None,
            text_mode="streaming", clone=clone,
        )  # fmt: skip
    with pytest.raises(InputError, match=r"base checkpoints take their manner from the reference"):
        build_prompt(
            models["tiny-base"], voice=None, language="auto", instruct="slow",
            text_mode="streaming", clone=clone,
        )  # fmt: skip
    with pytest.raises(InputError, match=r"speaks only with a cloned voice, and none was given"):
        build_prompt(
            models["tiny-base"], voice=None, language="auto", instruct=None,
            text_mode="streaming",
        )  # fmt: skip


def test_encoders_when_the_checkpoint_has_none(models: dict[str, Model]) -> None:
    with pytest.raises(CheckpointError, match=r"\(voice_design\) has no speaker encoder"):
        _ = models["tiny-voicedesign"].speaker_encoder
    with pytest.raises(CheckpointError, match=r"\(voice_design\) has no speech encoder"):
        _ = models["tiny-voicedesign"].speech_encoder

"""In-context clones through a real engine: the reference's codes, its sound, and open text."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from playhead.engine.messages import Append, Cancel, Close, Pcm, Starved, Submit, TextMode
from playhead.engine.models.cloning import make_clone
from playhead.engine.models.greedy import GREEDY
from playhead.engine.models.loader import Model, load_model
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.units import FRAME_SAMPLES, to_pcm
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
from tests.engine.clone_speaker import Speaker, keep
from tests.voices import TRANSCRIPT, as_float, reference_wave

GOLDENS = Path(__file__).parents[1] / "data" / "goldens"
RECORD: dict[str, Any] = json.loads((GOLDENS / "cloning.json").read_text(encoding="utf-8"))
ARRAYS = load_file(GOLDENS / "cloning.safetensors")
CASES: dict[str, dict[str, Any]] = {
    name: case for name, case in RECORD["cases"].items() if case["voice"] is not None
}
NUM_FRAMES: int = RECORD["num_frames"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Checkpoints by shape; each golden's reference is stored under its name."""
    home = tmp_path_factory.mktemp("home")
    shapes = sorted({case["shape"] for case in CASES.values()})
    made = {s: write_checkpoint(home / s, s, dtype=torch.float32) for s in shapes}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        store, models = VoiceStore(), {s: load_model(made[s]) for s in shapes}
        for name, case in CASES.items():
            model = models[case["shape"]]
            wave = as_float(reference_wave(case["voice"], case["reference_s"]))
            clone = make_clone(model, wave, case["transcript"] or "")
            store.add(LOCAL_OWNER, name, clone, model.voice_fingerprint, case["reference_s"])
        keep(store, LOCAL_OWNER, "anna", models["tiny-base"], 9, TRANSCRIPT)
        yield made


@pytest.fixture
def speaker(folders: dict[str, Path]) -> Speaker:
    return Speaker(folders["tiny-base"])


def golden(name: str, request_id: str = "r") -> Submit:
    """Ask for what the reference package was asked for."""
    return Submit(
        request_id, name, CASES[name]["language"], text=RECORD["text"], closed=True,
        text_mode=CASES[name]["mode"], live=False, sampling=GREEDY, normalize=False,
        max_frames=NUM_FRAMES,
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_codes_when_greedy(folders: dict[str, Path], name: str) -> None:
    speaker = Speaker(folders[CASES[name]["shape"]])
    speaker.engine.post(golden(name))
    speaker.finish("r")
    assert (np.stack(speaker.runner.codes[0]) == ARRAYS[f"{name}.codes"].numpy()).all()


def decoded(model: Model, frames: NDArray[np.int16]) -> NDArray[np.int16]:
    with torch.inference_mode():
        codes = torch.from_numpy(frames.astype(np.int64))[None]
        samples = model.codec.decode(codes, model.codec.new_state(1), [0])
    return to_pcm(samples[0].numpy())


def test_sound_when_it_goes_on_from_the_reference(
    folders: dict[str, Path], speaker: Speaker
) -> None:
    """The last request finds the codec's state behind the reference among others'."""
    model = load_model(folders["tiny-base"])
    reference = ARRAYS["context.ref_codes"].numpy().astype(np.int16)
    made = ARRAYS["context.codes"].numpy().astype(np.int16)
    wanted = decoded(model, np.concatenate([reference, made]))[len(reference) * FRAME_SAMPLES :]
    speaker.engine.post(golden("context_full", "another voice"))
    speaker.finish("another voice")
    for request_id in ("first", "again"):
        speaker.engine.post(golden("context", request_id))
        speaker.finish(request_id)
        ours = speaker.pcm(request_id)
        assert len(wanted) - 3 * FRAME_SAMPLES < len(ours) <= len(wanted), "silence is trimmed"
        assert np.abs(ours.astype(int) - wanted[-len(ours) :]).max() <= 2
    bare = decoded(model, made)
    assert np.abs(bare[-len(ours) :].astype(int) - ours).max() > 100, "the reference is not heard"


def spoken(speaker: Speaker, request_id: str, pieces: Sequence[str]) -> None:
    """Speak text that comes in pieces, with all that can be said in between."""
    speaker.engine.post(Submit(request_id, "anna", live=False, max_frames=400, seed=7))
    for piece in pieces:
        speaker.engine.post(Append(request_id, piece))
        for _ in range(100):
            speaker.engine.step()
    speaker.engine.post(Close(request_id))
    speaker.finish(request_id)


@pytest.mark.slow
def test_sentences_when_text_is_open(speaker: Speaker) -> None:
    speaker.engine.post(Submit("r", "anna", live=False, seed=3))
    num_frames = []
    for piece in ("Hel", "lo", ". ", "Test", "s", ". And", " more"):
        speaker.engine.post(Append("r", piece))
        for _ in range(200):
            speaker.engine.step()
        num_frames.append(len(speaker.runner.codes[3]))
    assert num_frames[:2] == [0, 0], "no sentence is complete"
    assert 0 < num_frames[3] == num_frames[4] < num_frames[5] == num_frames[6], num_frames
    results = speaker.results["r"]
    starved = [at for at, result in enumerate(results) if isinstance(result, Starved)]
    assert len(starved) == 2, "after each sentence its listener is told to wait"
    first_samples = sum(len(r.pcm) // 2 for r in results[: starved[0]] if isinstance(r, Pcm))
    told = results[starved[0]]
    assert isinstance(told, Starved)
    assert told.end_sample == first_samples
    speaker.engine.post(Cancel("r"))
    speaker.engine.step()


@pytest.mark.slow
def test_codes_when_open_text_comes_in_other_pieces(speaker: Speaker) -> None:
    whole = "So. No! Yes"
    spoken(speaker, "pieces", [whole[:5], whole[5:7], whole[7:]])
    ours = np.stack(speaker.runner.codes.pop(7))
    digests = speaker.runner.digests.pop(7)
    spoken(speaker, "at once", [whole])
    assert speaker.runner.digests[7] == digests
    assert len(set(digests)) == 3, "three sentences, a prompt each"
    assert (np.stack(speaker.runner.codes[7]) == ours).all()


@pytest.mark.slow
def test_text_when_complete_is_laid_out_at_once(speaker: Speaker) -> None:
    text = "Hello. Test!"
    speaker.engine.post(Submit("r", "anna", text=text, closed=True, live=False, max_frames=300))
    speaker.finish("r")
    assert len(speaker.runner.digests[0]) == 1, "as the reference does: no cut at a sentence end"


def test_prompt_when_the_reference_leaves_no_room(
    folders: dict[str, Path], speaker: Speaker
) -> None:
    model = load_model(folders["tiny-base"])
    clone = make_clone(model, as_float(reference_wave(3, 30.0)), f"{TRANSCRIPT}, " * 10)
    store = VoiceStore()
    store.add(LOCAL_OWNER, "long", clone, model.voice_fingerprint, 30.0)
    text = "hello world, this is a test. " * 12
    modes: tuple[TextMode, ...] = ("streaming", "full")
    for mode in modes:
        submit = Submit(mode, "long", text=text, closed=True, live=False, max_frames=20)
        speaker.engine.post(replace(submit, text_mode=mode))
    speaker.finish(*modes)
    assert len(speaker.pcm("streaming")) > 0
    end = speaker.end("full")
    assert "shorten the instruction, the voice's reference, or the text" in str(end)

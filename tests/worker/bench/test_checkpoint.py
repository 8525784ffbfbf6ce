"""Generated checkpoints: kept, and silent for exactly as long as asked."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from playhead.engine.errors import ConfigError
from playhead.engine.models.loader import load_model
from playhead.engine.trim import LeadingSilenceTrim
from playhead.worker.bench.checkpoint import _made, checkpoint, shape_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


def test_a_checkpoint_is_written_once_and_half_a_one_never_counts(folder: Path) -> None:
    path = checkpoint("tiny", folder)
    stamp = (path / "model.safetensors").stat().st_mtime_ns
    assert checkpoint("tiny", folder) == path
    assert (path / "model.safetensors").stat().st_mtime_ns == stamp
    (path / "complete").unlink()
    checkpoint("tiny", folder)
    assert (path / "model.safetensors").stat().st_mtime_ns > stamp
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]


def test_two_that_want_one_at_a_time_get_it_written_once(tmp_path: Path) -> None:
    writers: list[Path] = []
    asked = threading.Barrier(2)

    def write(into: Path) -> None:
        writers.append(into)
        time.sleep(0.2)  # long enough for the other one to look

    def ask() -> Path:
        asked.wait(30)
        return _made(tmp_path / "tiny", write)

    with ThreadPoolExecutor(2) as pool:
        got = [each.result() for each in [pool.submit(ask), pool.submit(ask)]]
    assert got == [tmp_path / "tiny"] * 2 and len(writers) == 1


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_speech_begins_after_the_silence_asked_for(folder: Path, silent: int) -> None:
    model = load_model(checkpoint("tiny", folder, silent))
    codes = torch.from_numpy(np.random.default_rng(2).integers(0, 128, (3, 5, 16)))
    with torch.inference_mode():
        pcm = model.codec.decode(codes, model.codec.new_state(4), [1, 2, 3]).numpy()
    frames = pcm.reshape(3, 5, 1920)
    assert not frames[:, :silent].any()
    assert all(np.square(frames[:, n]).mean() > 1e-4 for n in range(silent, 5))
    for row in frames:
        trim = LeadingSilenceTrim()
        kept = [len(trim.push(frame)) for frame in row]
        assert kept[:silent] == [0] * silent and all(kept[silent:])
        assert silent * 1920 - 480 <= trim.dropped_samples <= (silent + 0.5) * 1920


def test_silence_changes_the_codec_alone(folder: Path) -> None:
    plain, silent = checkpoint("tiny", folder), checkpoint("tiny", folder, 1)
    shapes = []
    for root in (plain, silent):
        tensors = load_file(root / "speech_tokenizer" / "model.safetensors")
        shapes.append({name: tuple(t.shape) for name, t in tensors.items()})
    assert shapes[0] == shapes[1]
    assert (plain / "model.safetensors").samefile(silent / "model.safetensors")


@pytest.mark.parametrize(
    ("shape", "silent"), [("large", 0), ("tiny", 3), ("tiny", -1), ("embedded", 1)]
)
def test_what_does_not_exist_is_refused(folder: Path, shape: str, silent: int) -> None:
    with pytest.raises(ConfigError):
        checkpoint(shape, folder, silent)


def test_a_shape_is_what_its_checkpoint_says(folder: Path) -> None:
    written, bare = load_model(checkpoint("tiny", folder)).config, shape_config("tiny")
    assert (written.talker, written.predictor, written.codec) == (
        bare.talker, bare.predictor, bare.codec
    )  # fmt: skip
    assert written.num_codes == bare.num_codes and written.text_vocab == bare.text_vocab

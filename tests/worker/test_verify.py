"""playhead verify: passes what is right, fails what is not, and says what it could not check."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from playhead.engine import device
from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Submit
from playhead.engine.models.loader import load_model
from playhead.engine.models.synthetic import write_checkpoint
from playhead.worker.cli import main
from playhead.worker.verify import (
    DESCRIPTION_OF_A_VOICE,
    REFERENCE_FRAMES,
    SENTENCES,
    _both_codes,
)
from playhead.worker.verify_speech import faults

Q, K = (f"talker.model.layers.0.self_attn.{n}_proj.weight" for n in ("k", "v"))
"""Two tensors of one shape."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path, "tiny-base", dtype=torch.float32)


def edit(path: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path)


def verify(capsys: pytest.CaptureFixture[str], folder: Path, *flags: str) -> tuple[int, str]:
    code = main(["verify", str(folder), "--no-speech", *flags])
    return code, capsys.readouterr().out


def test_table_when_nothing_is_wrong(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, table = verify(capsys, folder)
    assert code == 0
    assert "skip  hashes                nothing to compare with" in table
    assert "pass  tensors               161 + 320 tensors" in table
    code, table = verify(capsys, folder, "--record")
    assert "pass  hashes                equal to the list beside it" in table
    assert table.splitlines()[-1].startswith("PASS  0 failed, 3 skipped")


def swap(tensors: dict[str, torch.Tensor]) -> None:
    tensors[Q], tensors[K] = tensors[K], tensors[Q]


def spoil(tensors: dict[str, torch.Tensor]) -> None:
    tensors["talker.model.norm.weight"][3] = float("nan")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (swap, rf"fail  hashes +2: tensor {Q} is not the one of the list; tensor {K} is not"),
        (spoil, r"fail  values +1: main: talker\.model\.norm\.weight holds values that are no"),
        (
            lambda t: t.pop("speaker_encoder.fc.bias"),
            r"fail  tensors +1: .*fc\.bias \[64\] is miss",
        ),
        (
            lambda t: t.update(extra=torch.zeros(2)),
            r"fail  tensors +1: .*extra \[2\] is unexpected",
        ),
        (
            lambda t: t.update({Q: t[Q][:-1].clone()}),
            r"fail  tensors +1: .*k_proj\.weight has shape \[31, 64\], the config asks",
        ),
    ],
    ids=["swapped", "nan", "missing", "extra", "mis-shaped"],
)
def test_table_when_a_tensor_is_wrong(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, torch.Tensor]], object],
    told: str,
) -> None:
    assert verify(capsys, folder, "--record")[0] == 0
    edit(folder / "model.safetensors", change)
    code, table = verify(capsys, folder)
    assert code == 1
    assert table.splitlines()[-1].startswith("FAIL")
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(table)


def test_table_when_the_embedded_voice_is_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its list is part of the package; nothing else tells two tensors of one shape apart."""
    assert main(["verify", "--no-speech"]) == 0
    assert "pass  hashes                equal to the list beside it" in capsys.readouterr().out
    copy = tmp_path / "voice"
    shutil.copytree(EMBEDDED_VOICE, copy)
    [path] = [each for each in copy.glob("model-*.safetensors") if Q in load_file(each)]
    edit(path, swap)
    code, table = verify(capsys, copy)
    assert code == 1
    assert f"fail  hashes                2: tensor {Q} is not the one of the list" in table
    assert table.splitlines()[-1].startswith("FAIL  1 failed"), table


def test_table_when_the_folder_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "no-such-thing", "--no-speech"]) == 1
    assert "fail  loading               'no-such-thing' is no folder" in capsys.readouterr().out


STAND_IN = (
    "#!{python}\nimport sys\nsys.stderr.write({error!r})\nprint({told!r})\nsys.exit({code})\n"
)
"""Of the reference's own Python: it runs none of its program, and tells what it is given."""


def stand_in(path: Path, told: str, code: int = 0, error: str = "") -> str:
    path.write_text(STAND_IN.format(python=sys.executable, error=error, told=told, code=code))
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_codes_when_the_reference_is_there(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ours against what its process prints: equal, different in one code, or no codes at all."""
    zeros = [[0] * 16] * REFERENCE_FRAMES
    asked = "--reference-python", stand_in(tmp_path / "python", json.dumps(zeros))
    code, table = verify(capsys, folder, *asked)
    assert code == 1
    assert "fail  reference codes       codes differ from frame 0 on (24 frames)" in table
    ours = _both_codes(load_model(folder), asked[1], tmp_path)[1]
    assert len(ours) == REFERENCE_FRAMES and len({tuple(frame) for frame in ours}) > 1
    stand_in(tmp_path / "python", "a line of a library\n" + json.dumps(ours))
    code, table = verify(capsys, folder, *asked)
    assert code == 0
    assert "pass  reference codes       24 frames of 16 codes are equal, greedy, fp32" in table
    ours[5][15] ^= 1
    stand_in(tmp_path / "python", json.dumps(ours))
    assert "codes differ from frame 5 on" in verify(capsys, folder, *asked)[1]
    stand_in(tmp_path / "python", "", 1, "no module named qwen_tts")
    code, table = verify(capsys, folder, *asked)
    assert code == 1
    assert "the reference did not run: no module named qwen_tts" in table


def test_sentences_when_a_language_is_published() -> None:
    stored = yaml.safe_load(SENTENCES.read_text(encoding="utf-8"))
    assert {language: len(texts) for language, texts in stored.items()} == dict.fromkeys(
        "english german spanish chinese japanese french korean russian italian portuguese".split(),
        10,
    )
    assert all(len(set(texts)) == 10 and all(texts) for texts in stored.values())


@pytest.mark.slow
def test_table_when_the_embedded_voice_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["verify", str(EMBEDDED_VOICE), "--sentences", "3"])
    table = capsys.readouterr().out
    assert code == 0, table
    assert "pass  speech english        3 sentences" in table
    assert "pass  word errors" in table


@pytest.mark.slow
def test_table_when_random_weights_speak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Speech that never ends by itself fails, and says so."""
    folder = write_checkpoint(tmp_path, "tiny", dtype=torch.float32)
    code = main(["verify", str(folder), "--sentences", "1", "--language", "english"])
    table = capsys.readouterr().out
    assert code == 1
    assert "fail  speech english" in table
    assert "did not end by itself (length)" in table


@pytest.mark.slow
def test_speech_is_that_of_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On its device or not at all; a designed voice gets a description."""
    folder = str(write_checkpoint(tmp_path, "tiny-voicedesign", dtype=torch.float32))
    monkeypatch.setattr(device, "probe", lambda: device.Found("2.11"))
    (tmp_path / "wrong.yaml").write_text("no_key: 1\n")
    for profile, told in ((str(tmp_path / "wrong.yaml"), "no_key"), ("ttfa", "without CUDA")):
        assert main(["verify", folder, "--profile", profile]) == 2
        said = capsys.readouterr()
        assert told in said.err and not said.out, "it is told before anything is looked at"
    asked: list[Submit] = []
    post = Engine.post
    monkeypatch.setattr(Engine, "post", lambda engine, x: asked.append(x) or post(engine, x))
    (tmp_path / "mine.yaml").write_text("extends: cpu\nmax_rows: 2\n")
    main(["verify", folder, "--profile", str(tmp_path / "mine.yaml"), "--sentences", "1",
          "--language", "english"])  # fmt: skip
    assert "pass  engine                profile mine, cpu, float32: " in capsys.readouterr().out
    assert [submit.instruct for submit in asked] == [DESCRIPTION_OF_A_VOICE]


TONE = (np.sin(np.arange(24_000) / 20) * 9_000).astype(np.int16)
TEXT = "a sentence of some words"


@pytest.mark.parametrize(
    ("pcm", "told"),
    [
        (np.tile(TONE, 2), []),
        (TONE[:6_000], ["took 0.2 s, about 1.6 s were expected"]),
        (np.tile(TONE, 9), ["took 9.0 s, about 1.6 s were expected"]),
        (np.zeros(40_000, np.int16), ["is silent"]),
        (np.concatenate([TONE, np.zeros(60_000, np.int16), TONE]), ["holds 2.5 s of silence"]),
        (np.zeros(0, np.int16), ["took 0.0 s, about 1.6 s were expected", "is silent"]),
    ],
    ids=["fine", "short", "long", "silent", "gap", "nothing"],
)
def test_faults_of_speech(pcm: np.ndarray, told: list[str]) -> None:
    assert list(faults(TEXT, pcm)) == told

"""playhead voice: from a recording on disk to a name that can be spoken."""

from pathlib import Path

import pytest
import torch

from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
from playhead.worker.cli import main
from tests.engine.test_reference_audio import encoded
from tests.voices import TRANSCRIPT, reference_wave


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_checkpoint(tmp_path / "model", "tiny-base", dtype=torch.float32))


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "anna.flac"
    path.write_bytes(encoded(reference_wave(1, 4.0, 44_100)[None], 44_100, "flac"))
    return path


@pytest.mark.slow
def test_voice_when_added_listed_and_deleted(
    tmp_path: Path, model: str, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path / "voices")]
    said = ["--transcript", TRANSCRIPT]
    assert main(["voice", "list", *store]) == 0
    assert "no voices in" in capsys.readouterr().out
    assert main(["voice", "add", "anna", str(recording), "--model", model, *said, *store]) == 0
    assert "added anna (" in capsys.readouterr().out
    [kept] = VoiceStore(tmp_path / "voices").voices(LOCAL_OWNER)
    assert kept.in_context
    assert abs(kept.reference_s - 4.0) < 0.05
    assert main(["voice", "list", *store]) == 0
    listed = capsys.readouterr().out
    assert "anna" in listed
    assert "vector and codes" in listed
    assert main(["voice", "delete", "anna", *store]) == 0
    assert main(["voice", "delete", "anna", *store]) == 2
    assert "'anna' is not stored" in capsys.readouterr().err


@pytest.mark.slow
def test_say_when_the_voice_is_stored(
    tmp_path: Path, model: str, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    agreed = ["--consent", "Anna agreed"]
    for name, said in (("vector", []), ("context", ["--transcript", TRANSCRIPT])):
        assert main(["voice", "add", name, str(recording), "--model", model, *said, *agreed]) == 0
        spoken = tmp_path / f"{name}.wav"
        ask = ["say", "Hi.", "-o", str(spoken), "--voice", name, "--model", model]
        assert main(ask) == 0
    assert {voice.consent for voice in VoiceStore().voices(LOCAL_OWNER)} == {"Anna agreed"}
    vector, context = (tmp_path / f"{name}.wav" for name in ("vector", "context"))
    assert vector.stat().st_size > 24_000 and vector.read_bytes() != context.read_bytes()
    assert main(["say", "Hi.", "-o", str(spoken), "--voice", "none", "--model", model]) == 2


@pytest.mark.slow
def test_add_when_something_is_wrong(
    tmp_path: Path, model: str, recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(tmp_path / "voices")]
    junk = tmp_path / "junk.wav"
    junk.write_bytes(b"junk")
    preset = str(write_checkpoint(tmp_path / "preset", "tiny", dtype=torch.float32))
    for arguments, told in (
        ([str(recording)], "no checkpoint; give --model"),
        ([str(tmp_path / "none.wav"), "--model", model], "can't be read"),
        ([str(junk), "--model", model], "of no known format; allowed are wav, mp3"),
        ([str(recording), "--model", preset], r"(custom_voice) has no speaker encoder"),
    ):
        assert main(["voice", "add", "anna", *arguments, *store]) == 2
        assert told in capsys.readouterr().err
    assert VoiceStore(tmp_path / "voices").voices(LOCAL_OWNER) == []

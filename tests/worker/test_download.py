"""playhead download against a server with the Hub's interface, through the real Hub client."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from playhead.engine.models.hashes import LIST_NAME
from playhead.engine.models.hub import PART
from playhead.engine.models.synthetic import write_checkpoint
from tests.worker.hub import COMMIT, Hub

UNREAD = "decoder.quantizer.rvq_first.input_proj.weight"
"""A tensor nothing reads, so it may be of any size."""
pytestmark = pytest.mark.slow


def playhead(hub: Hub | None, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: the Hub client reads its settings at import."""
    settings = {"HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    settings["TQDM_POSITION"] = "-1"  # progress bars although this is no terminal
    settings["HF_ENDPOINT"] = "http://127.0.0.1:9" if hub is None else hub.url
    return subprocess.run(
        [sys.executable, "-m", "playhead.worker.cli", *arguments],
        env=os.environ | settings, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "served", "tiny-base", dtype=torch.float32)


def test_download_when_cut_goes_on_and_is_used_offline(tmp_path: Path, checkpoint: Path) -> None:
    """Pieces of 10 MiB are kept when the command ends; the next one asks for the rest."""
    home, piece = tmp_path / "home", 10 << 20
    speech = checkpoint / "speech_tokenizer" / "model.safetensors"
    save_file(load_file(speech) | {UNREAD: torch.zeros(6_000_000)}, speech)
    with Hub(checkpoint) as hub:
        hub.cut_after_bytes, hub.most_downloads = piece + 1_000_000, 1
        broken = playhead(hub, home, "download", "owner/voice")
        assert broken.returncode == 2, broken.stderr
        assert "'owner/voice' could not be fetched" in broken.stderr
        assert set(hub.ranges) == {"", f"bytes={piece}-"}
        assert re.search(r"speech_tokenizer/model\.safetensors: +\d+%", broken.stderr), "progress"
        hub.ranges.clear()
        hub.most_downloads = None
        done = playhead(hub, home, "download", "owner/voice")
        assert done.returncode == 0, done.stderr
        assert hub.ranges == [f"bytes={piece}-", f"bytes={2 * piece}-"]
    assert "base, 1b7" in done.stdout
    assert COMMIT in done.stdout
    folder = Path(done.stdout.splitlines()[-1])
    for file in ("model.safetensors", "speech_tokenizer/model.safetensors"):
        assert (folder / file).read_bytes() == (checkpoint / file).read_bytes()
    assert json.loads((folder / LIST_NAME).read_text())
    assert not list(home.rglob(f"*{PART}"))
    for revision in ((), ("--revision", COMMIT)):
        offline = playhead(None, home, "download", "owner/voice", *revision, "--offline")
        assert offline.returncode == 0 and COMMIT in offline.stdout, offline.stderr
    other = playhead(None, home, "download", "owner/voice", "--revision", "d" * 40, "--offline")
    assert other.returncode == 2, "a pinned revision is that one or none"
    assert "'owner/voice' could not be fetched" in other.stderr


def test_verify_when_a_file_of_the_cache_was_changed(tmp_path: Path, checkpoint: Path) -> None:
    home = tmp_path / "home"
    with Hub(checkpoint) as hub:
        done = playhead(hub, home, "download", "owner/voice")
        assert done.returncode == 0, done.stderr
        folder = Path(done.stdout.splitlines()[-1])
        (folder / LIST_NAME).unlink()
        fine = playhead(hub, home, "verify", str(folder), "--no-speech")
        assert "equal to the Hub's" in fine.stdout, fine.stdout
        blob = (folder / "model.safetensors").resolve()
        data = bytearray(blob.read_bytes())
        data[-1] ^= 1
        blob.chmod(0o644)
        blob.write_bytes(data)
        changed = playhead(hub, home, "verify", str(folder), "--no-speech")
        removed = playhead(hub, home, "download", "owner/voice")
        assert removed.returncode == 2 and "1 files were damaged; run the command" in removed.stderr
        again = playhead(hub, home, "download", "owner/voice")
        assert again.returncode == 0, again.stderr
    assert changed.returncode == 1
    assert "model.safetensors is not the file of the Hub" in changed.stdout
    fetched, served = ((f / "model.safetensors").read_bytes() for f in (folder, checkpoint))
    assert fetched == served


def test_download_when_the_checkpoint_is_incomplete(tmp_path: Path, checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    tensors = load_file(path)
    del tensors["speaker_encoder.fc.bias"]
    save_file(tensors, path)
    with Hub(checkpoint) as hub:
        done = playhead(hub, tmp_path / "home", "download", "owner/voice")
    assert done.returncode == 2
    assert "speaker_encoder.fc.bias [64] is missing" in done.stdout

"""The first command of docs/api.md, as it stands there, against a running service."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.worker.http.conftest import Served

API = (Path(__file__).resolve().parents[3] / "docs" / "api.md").read_text()

pytestmark = pytest.mark.slow


def test_the_guides_first_request_is_answered_with_speech(
    open_server: Served, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    (told,) = re.findall(r"    (curl localhost:8880/v1/audio/speech (?:.*\\\n)*.*)", API)
    told = told.replace("\\\n", " ").replace("localhost:8880", open_server.url)
    command = shlex.split(told)
    done = subprocess.run(
        [*command, "--fail", "--silent", "--show-error"], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "hello.mp3").read_bytes().startswith(b"ID3")

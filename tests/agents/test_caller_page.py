"""The caller page's parts that run without a browser."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from playhead.engine.receiver import ReceiverReport

WEB = Path(__file__).resolve().parent.parent.parent / "agents" / "web"
WINDOWS = """
import { windowReport } from "%s/playhead-receiver.js";
const last = {delay: 10, target: 12, emitted: 1000, concealed: 50, playoutDelay: 1, playoutCount: 100, rttS: 0.02};
const now = {delay: 730, target: 972, emitted: 13000, concealed: 530, playoutDelay: 361, playoutCount: 12100, rttS: 0.0456789};
console.log(JSON.stringify([windowReport(last, now), windowReport(last, last)]));
"""  # noqa: E501


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("needs node")
    return found


def test_receiver_report_is_a_window_that_the_speaker_accepts(node: str) -> None:
    command = [node, "--input-type=module", "-e", WINDOWS % WEB]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    report, nothing = json.loads(done.stdout)
    assert nothing is None
    assert report == {
        "jitter_buffer_s": 0.06,
        "target_s": 0.08,
        "rtt_s": 0.0457,
        "playout_s": 0.03,
        "concealed_s": 0.01,
        "audio_s": 0.25,
    }
    assert ReceiverReport(**report).problem() is None


@pytest.mark.parametrize("path", sorted(WEB.glob("*.js")), ids=lambda path: path.name)
def test_scripts_parse(node: str, path: Path) -> None:
    done = subprocess.run([node, "--check", str(path)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr


def test_page_loads_only_its_own_files() -> None:
    text = "".join(path.read_text() for path in WEB.iterdir() if path.suffix in (".html", ".css"))
    assert "http://" not in text and "https://" not in text

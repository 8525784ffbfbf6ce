"""The client snippets people copy: run as they stand against a real server."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.http.conftest import SHORT, Served

pytestmark = pytest.mark.slow

CLIENTS = Path(__file__).resolve().parents[3] / "agents" / "clients"
NODE_SCRIPT = """
import { SpeechSocket } from "%(module)s";
let samples = 0;
const client = new SpeechSocket("%(url)s", { onAudio: (name, pcm, start) => {
  if (name !== "a" || start !== samples) throw new Error(`gap at ${start}`);
  samples += pcm.length;
} });
await client.opened;
const first = client.start("a", { voice: "nova" });
for (const piece of ["Hel", "lo ", "there."]) first.append(piece);
first.flush(); first.append("And more."); first.end();
const done = await first.done;
client.onAudio = () => {};
const second = client.start("b");
second.append("This goes on and on and on, and nobody hears the end of it. ".repeat(9));
second.end();
second.report(0, "playing");
setTimeout(() => second.cancel(), 300);
const cut = await second.done;
client.close();
console.log(JSON.stringify([done.reason, done.num_samples === samples, cut.reason]));
"""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_socket_client_writes_speech(open_server: Served, tmp_path: Path) -> None:
    out = tmp_path / "out.pcm"
    told = run(
        sys.executable, str(CLIENTS / "speech_socket.py"), open_server.socket_url, str(out), SHORT
    )
    assert '"utterance.done"' in told and out.stat().st_size > 24_000


def test_javascript_client_speaks_flushes_and_cancels(open_server: Served) -> None:
    node = shutil.which("node")
    assert node is not None, "Node 20 or newer runs this test"
    values = {"module": CLIENTS / "speech_socket.mjs", "url": open_server.socket_url}
    flags = ["--no-warnings", "--experimental-websocket", "--input-type=module", "-e"]
    assert run(node, *flags, NODE_SCRIPT % values).strip() == '["stop",true,"cancelled"]'


def test_http_client_saves_a_file(open_server: Served, tmp_path: Path) -> None:
    out = tmp_path / "out.flac"
    run(sys.executable, str(CLIENTS / "speech_http.py"), f"{open_server.url}/v1", str(out), SHORT)
    assert out.read_bytes().startswith(b"fLaC")

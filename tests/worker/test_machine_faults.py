"""The machine under a running service: a clock that jumps, full disk, damaged cache, kill -9."""

import ast
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import httpx
import psutil
import pytest

from playhead.engine.library import EMBEDDED_VOICE
from playhead.worker.demo.server import free_port

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).parent / "faults"
SERVE = [sys.executable, "-m", "playhead.worker.cli", "serve"]
TEXT = "The clock on the wall may say what it likes, this sentence goes on to its very end."
DAY_S = 86_400
CACHES = ("TMPDIR", "HF_HOME", "TRITON_CACHE_DIR", "HOME")
READS_WALL_CLOCK = {
    "worker/logs.py": "log lines carry the date",
    "worker/bench/result.py": "so do result files",
    "engine/voice_store.py": "and stored voices",
    "agents/plugin/pump_output.py": "the framework's event wants the date",
}


def test_the_wall_clock_is_read_for_dates_only() -> None:
    wall = {("time", "time"), ("time", "time_ns"), ("time", "gmtime"), ("time", "localtime")}
    wall |= {("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
    used: dict[tuple[str, str], set[Path]] = {}
    for room in ("worker", "engine", "kernels", "agents"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    used.setdefault((node.value.id, node.attr), set()).add(path)
    reading = {str(path.relative_to(ROOT)) for name in wall for path in used.get(name, ())}
    assert reading == READS_WALL_CLOCK.keys()


class Running:
    """A `playhead serve` that was started in some odd way."""

    every: ClassVar[list["Running"]] = []

    def __init__(self, folder: Path, command: list[str], **env: str) -> None:
        Running.every.append(self)
        self.log = folder / "log"
        self.port = free_port()
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PLAYHEAD_")}
        clean["PYTHONPATH"] = f"{FAULTS}{os.pathsep}{ROOT / 'src'}"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)], stdout=out, stderr=out, env={**clean, **env}
            )

    @property
    def told(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ready(self) -> bool:
        assert self.process.poll() is None, self.told
        try:
            return httpx.get(f"{self.url}/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def until(self, condition: Callable[[], Any], limit_s: float = 120) -> None:
        deadline_s = os.times().elapsed + limit_s
        while not condition():
            assert os.times().elapsed < deadline_s, self.told[-4000:]
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue

    def speaks(self) -> bool:
        body = {"input": "Hello.", "response_format": "wav"}
        answer = httpx.post(f"{self.url}/v1/audio/speech", json=body, timeout=60)
        return answer.status_code == 200 and len(answer.content) > 10_000

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.told


@pytest.fixture(autouse=True)
def all_ended() -> Iterator[None]:
    yield
    for each in Running.every:
        each.process.kill()  # its engine sees that and ends, too
        each.process.wait()
    Running.every.clear()


@pytest.mark.slow
def test_a_clock_step_changes_dates_and_nothing_else(tmp_path: Path) -> None:
    clock = tmp_path / "clock"

    def step(seconds: int) -> None:
        clock.with_suffix(".new").write_text(f"{seconds}")
        clock.with_suffix(".new").rename(clock)

    step(0)
    env = {"PLAYHEAD_TEST_CLOCK": str(clock)}
    served = Running(tmp_path, [*SERVE, "--log-format", "json"], **env)
    served.until(lambda: served.ready)
    body = {"input": TEXT, "response_format": "pcm", "stream_format": "sse"}
    kinds: list[str] = []
    with httpx.stream("POST", f"{served.url}/v1/audio/speech", json=body, timeout=15) as answer:
        for line in answer.iter_lines():
            if line:
                kinds.append(json.loads(line.removeprefix("data: "))["type"])
            if len(kinds) in (1, 5):  # back again: a pace by this clock would stand still
                step(3 * DAY_S if len(kinds) == 1 else -3 * DAY_S)
    assert set(kinds[:-1]) == {"speech.audio.delta"} and len(kinds) > 6
    assert kinds[-1] == "speech.audio.done"
    step(3 * DAY_S)
    assert served.ready and served.speaks()
    served.stop()
    dates = [json.loads(line)["time"][:10] for line in served.told.splitlines()]
    assert dates[0] < dates[-1], "the step was seen"


def may_mount() -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode != 0:
        pytest.skip("only root may mount a small disk in a name space of its own")


@pytest.mark.slow
def test_a_disk_that_fills_up_and_a_kill_end_no_service(
    tmp_path: Path, private_folder: Path
) -> None:
    may_mount()
    cache = private_folder / "cache"  # of a short name: a socket's may have 107 characters
    cache.mkdir()
    script = f'mount -t tmpfs -o size=256k tmpfs {cache} && exec "$@"'
    env = dict.fromkeys(CACHES, str(cache))
    served = Running(tmp_path, ["unshare", "-m", "sh", "-c", script, "sh", *SERVE], **env)
    served.until(lambda: served.ready)
    inside = Path(f"/proc/{served.process.pid}/root{cache}")
    assert [each.name[:9] for each in inside.iterdir()] == ["playhead-"]
    with pytest.raises(OSError, match="No space left"), (inside / "fill").open("wb") as fill:
        for _ in range(1024):
            fill.write(bytes(1024))
            fill.flush()
    assert served.speaks()
    (engine,) = psutil.Process(served.process.pid).children()
    engine.kill()  # the next one finds the disk full
    served.until(lambda: served.told.count("engine ready at") == 2)
    served.until(lambda: served.ready)
    assert served.speaks()
    (engine,) = psutil.Process(served.process.pid).children()
    served.process.kill()
    served.process.wait()
    engine.wait(30)  # it does not outlive its service
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", served.port))


@pytest.mark.slow
def test_a_disk_that_is_full_from_the_start_is_named(tmp_path: Path) -> None:
    may_mount()
    if Path(sys.executable).is_relative_to("/tmp") or Path(sys.executable).is_relative_to(
        "/var/tmp"
    ):
        pytest.skip("the small disk that it mounts at /tmp would hide the interpreter")
    script = (
        "mount -t tmpfs -o size=4k tmpfs /tmp && head -c 9000 /dev/zero >/tmp/fill 2>/dev/null;"
    )
    script += ' mount --bind /tmp /var/tmp && cd /proc && exec "$@"'
    env = {"TMPDIR": "/tmp"}
    served = Running(tmp_path, ["unshare", "-m", "sh", "-c", script, "sh", *SERVE], **env)
    assert served.process.wait(60) == 2, served.told
    assert "playhead: no folder for the engine's socket" in served.told
    assert "TMPDIR" in served.told and "Traceback" not in served.told


@pytest.mark.slow
def test_a_cache_serves_without_a_network_and_is_named_once_damaged(tmp_path: Path) -> None:
    commit = "0123456789" * 4
    kept = tmp_path / "hub/models--somebody--voice"
    shutil.copytree(EMBEDDED_VOICE, kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs/main").write_text(commit)
    command = [*SERVE, "--model", "somebody/voice"]
    env = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    served = Running(tmp_path, command, **env)
    served.until(lambda: served.ready)
    assert served.speaks()
    served.stop()
    weights = kept / "snapshots" / commit / "model-00002-of-00002.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    served = Running(tmp_path, command, **env)
    assert served.process.wait(60) == 2, served.told
    assert weights.name in served.told and "is cut off" in served.told
    assert served.told.count("child started") == 1 and "Traceback" not in served.told

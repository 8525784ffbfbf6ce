"""Real servers for the session: the service as a process, with the real engine and its voice."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.models.config import read_config

SHORT = "Hello there."
LONG = "This sentence is said again and again, until somebody stops it. " * 16
ALICE, BOB = "alice-key-of-the-tests", "bob-key-of-the-tests"
PAGE = "https://page.example"
VOICE: str = read_config(EMBEDDED_VOICE).voices[0]


@dataclass
class Served:
    """A running `playhead serve`."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path
    keys: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def socket_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/audio/speech/ws"

    def numbers(self) -> dict[str, float]:
        """Return every number of /metrics without labels."""
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        families = text_string_to_metric_families(text)
        samples = [each for family in families for each in family.samples if not each.labels]
        names = [each.name.removeprefix("playhead_").removesuffix("_total") for each in samples]
        return dict(zip(names, [each.value for each in samples], strict=True))

    def quiet(self) -> dict[str, float]:
        """Return the numbers once nothing is spoken and the engine has told of the last end."""
        self.until(lambda now: not now["http_live_utterances"] and not now["engine_live"])
        time.sleep(0.4)
        return self.numbers()

    def until(self, condition: Callable[[dict[str, float]], bool]) -> dict[str, float]:
        """Wait until the numbers are as wanted; return them."""
        deadline_s = time.monotonic() + 30
        while not condition(numbers := self.numbers()):
            assert time.monotonic() < deadline_s, numbers
            time.sleep(0.1)
        return numbers

    def still_frames(self) -> float:
        """Return the engine's frames once it makes no more of them."""
        seen: list[float] = []
        deadline_s = time.monotonic() + 30
        while len(seen) < 4 or len(set(seen[-4:])) > 1:
            assert time.monotonic() < deadline_s, seen
            seen.append(self.numbers()["engine_frame_rows"])
            time.sleep(0.4)
        return seen[-1]


class Launcher:
    """Starts servers and says when they are ready."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self, name: str, *flags: str) -> Served:
        keys, log, port = (self._folder / f"{name}.{end}" for end in ("keys", "log", "port"))
        keys.write_text(f"alice {ALICE}\nbob {BOB} max_streams=1 chars_per_minute=60  # small\n")
        command = [sys.executable, "-m", "playhead.worker.serve", "--port", "0"]
        command += ["--port-file", str(port), *(flag.replace("KEYS", str(keys)) for flag in flags)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("PLAYHEAD_")}
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=clean)
        deadline_s = time.monotonic() + 60
        while not (port.is_file() and port.read_text().endswith("\n")):
            assert process.poll() is None and time.monotonic() < deadline_s, log.read_text()
            time.sleep(0.05)
        return Served(process, int(port.read_text()), log, keys)

    def ready(self, served: Served) -> Served:
        deadline_s = time.monotonic() + 60
        while httpx.get(f"{served.url}/ready", timeout=30).status_code != 200:
            assert served.process.poll() is None, served.log.read_text()
            assert time.monotonic() < deadline_s, served.log.read_text()
            time.sleep(0.1)
        return served


def end(served: Served) -> None:
    served.process.terminate()
    assert served.process.wait(30) == 0, served.log.read_text()
    log = served.log.read_text()
    assert "Traceback" not in log and "never retrieved" not in log, log


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="session")
def open_server(launcher: Launcher) -> Iterator[Served]:
    """Serve without keys, the engine in a process of its own: the defaults."""
    served = launcher.ready(launcher.begin("open", "--voice-alias", f"narrator={VOICE}"))
    yield served
    end(served)


@pytest.fixture(scope="session")
def strict_server(launcher: Launcher) -> Iterator[Served]:
    """Serve with keys and small limits, all in one process."""
    flags = ["--carrier", "threads", "--keys", "KEYS", "--cors-origin", PAGE]
    flags += ["--idle-s", "1", "--stall-s", "1", "--max-chars", "1200"]
    served = launcher.ready(launcher.begin("strict", *flags))
    yield served
    end(served)

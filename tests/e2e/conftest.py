"""Fixtures of the end-to-end tests: one worker for the session, and who listens to it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.demo.show import render_directly
from tests.e2e.rig import (
    FarRoom,
    Hear,
    HeardSpeech,
    KnownSpeech,
    Link,
    Render,
    Spoken,
    WorkerProcess,
    run_listener,
)

LINK = Path(__file__).parent / "impaired_link.py"


@pytest.fixture(scope="package")
def access() -> Iterator[Access]:
    """Run a server of these tests' own: the worker joins every room of its server by itself."""
    with LocalServer() as server:
        yield server.access


@pytest.fixture(scope="package")
def worker(access: Access, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """Run one worker for all these tests."""
    process = WorkerProcess(access, tmp_path_factory.mktemp("worker") / "worker.log")
    process.start()
    yield process
    process.stop()


@pytest.fixture
def hear(worker: WorkerProcess, room_name: str, tmp_path: Path) -> Hear:
    """Return a function that sends texts from a listener's process and returns what it heard."""

    def run(texts: list[Spoken], *, settle_s: float = 0.5) -> HeardSpeech:
        return _heard_from(worker, room_name, texts, tmp_path, settle_s)

    return run


def _heard_from(
    worker: WorkerProcess, room: str, texts: list[Spoken], folder: Path, settle_s: float
) -> HeardSpeech:
    try:
        return run_listener(worker.access, room, texts, folder, settle_s=settle_s)
    except (AssertionError, subprocess.TimeoutExpired):
        print(worker.log()[-6000:])
        raise


@pytest.fixture(scope="package")
def paragraph(worker: WorkerProcess, tmp_path_factory: pytest.TempPathFactory) -> KnownSpeech:
    """Hear the paragraph on a clean link, once for all who judge it.

    A text goes before it: the clock has the listener's reports from that one on.
    """
    texts = [Spoken("before", "Hello there."), Spoken("paragraph", PARAGRAPH)]
    folder = tmp_path_factory.mktemp("paragraph")
    heard = _heard_from(worker, "paragraph", texts, folder, 1.5)
    return KnownSpeech(heard, "paragraph", worker.made("paragraph"))


@pytest.fixture(scope="package")
def link() -> Iterator[Link]:
    """Lay a link into a network namespace."""
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun") or shutil.which("ip") is None:
        pytest.skip("an impaired link needs root, /dev/net/tun and the ip command")
    namespace = f"ph{os.getpid() % 100_000}"
    process = subprocess.Popen(
        [sys.executable, "-P", str(LINK), namespace],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None and process.stderr is not None
    ready = process.stdout.readline().split()
    if len(ready) != 3:
        pytest.skip(f"no TUN device or network namespace here: {process.stderr.read()[-300:]}")
    yield Link(process, namespace, ready[1], ready[2])
    process.stdin.close()
    process.wait(10)


@pytest.fixture(scope="package")
def far_room(link: Link, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarRoom]:
    """Run a server and a worker at the near end of the link."""
    with LocalServer(host=link.address, interface=link.interface) as server:
        worker = WorkerProcess(server.access, tmp_path_factory.mktemp("far") / "worker.log")
        worker.start()
        yield FarRoom(link, worker)
        worker.stop()


@pytest.fixture(scope="session")
def rendered() -> Render:
    """Return the engine's own samples of a text and seed; made once each."""
    made: dict[tuple[str, int], npt.NDArray[np.int16]] = {}

    def render(text: str, seed: int = 7) -> npt.NDArray[np.int16]:
        if (text, seed) not in made:
            made[text, seed] = render_directly(text, seed)
        return made[text, seed]

    return render

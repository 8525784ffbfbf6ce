"""Fixtures of the end-to-end tests: one worker for the session, and who listens to it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.demo.show import render_directly
from tests.e2e.rig import Hear, HeardSpeech, Render, Spoken, WorkerProcess, run_listener


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
def hear(worker: WorkerProcess, access: Access, room_name: str, tmp_path: Path) -> Hear:
    """Return a function that sends texts from a listener's process and returns what it heard."""

    def run(texts: list[Spoken], *, settle_s: float = 0.5) -> HeardSpeech:
        try:
            return run_listener(access, room_name, texts, tmp_path, settle_s=settle_s)
        except (AssertionError, subprocess.TimeoutExpired):
            print(worker.log()[-6000:])
            raise

    return run


@pytest.fixture(scope="session")
def rendered() -> Render:
    """Return the engine's own samples of a text and seed; made once each."""
    made: dict[tuple[str, int], npt.NDArray[np.int16]] = {}

    def render(text: str, seed: int = 7) -> npt.NDArray[np.int16]:
        if (text, seed) not in made:
            made[text, seed] = render_directly(text, seed)
        return made[text, seed]

    return render

"""The load told to the media server: the engine's own or what rooms count, whichever is more."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from playhead.engine.messages import Result
from playhead.worker.app import LOAD_LIMIT, WorkerApp, WorkerOptions
from playhead.worker.client import EngineClient
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import ScriptedEngine

MAX_ROOMS = 4


class BusyEngine(ScriptedEngine):
    """Says that it is as busy as it is told to."""

    busy = 0.0

    def load(self) -> float:
        return self.busy


class Worker:
    """A worker that is not connected, with an engine that is as busy as a test wants."""

    def __init__(self) -> None:
        def make(on_results: Callable[[list[Result]], None]) -> BusyEngine:
            self.engine = BusyEngine(on_results)
            return self.engine

        options = WorkerOptions("ws://nowhere", "k", "s" * 32, max_rooms=MAX_ROOMS)
        self.app = WorkerApp(options)
        self.app.client = EngineClient(ThreadCarrier(make))  # type: ignore[arg-type]

    def told(self, busy: float, num_rooms: int = 0) -> float:
        """Return what the framework asks for and passes on, the engine being so busy."""
        self.engine.busy = busy
        asked: Any = self.app._server.load_fnc
        return float(asked(SimpleNamespace(active_jobs=[None] * num_rooms)))


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    made.app.client.start()
    yield made
    made.app.client.close()


def test_a_busy_engine_is_told_to_the_server_even_without_a_room(worker: Worker) -> None:
    assert worker.told(0.9) >= 0.9 >= LOAD_LIMIT
    for busy in (0.0, 0.3, 0.84, 1.0):
        assert worker.told(busy) == busy
    assert worker.told(0.9) > worker.told(0.2), "an engine that has time again takes rooms"


def test_rooms_and_engine_count_beside_each_other(worker: Worker) -> None:
    by_rooms = [worker.told(0.0, num) for num in range(MAX_ROOMS + 1)]
    assert by_rooms == sorted(set(by_rooms))
    for busy in (0.1, 0.5, 0.9):
        for num, alone in enumerate(by_rooms):
            assert worker.told(busy, num) >= max(busy, alone)
    assert worker.told(0.9, 1) >= 0.9 > by_rooms[1], "the engine, where rooms count less"
    assert worker.told(0.1, MAX_ROOMS) >= LOAD_LIMIT > 0.1, "the rooms, where the engine idles"


def test_an_engine_that_does_not_run_takes_no_room() -> None:
    server = SimpleNamespace(active_jobs=[])
    assert Worker().app.load(server) == 1.0  # type: ignore[arg-type]

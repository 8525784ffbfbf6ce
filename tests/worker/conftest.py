"""Fixtures of the worker's tests."""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from playhead.worker.engine_server import EngineServer
from playhead.worker.thread_carrier import MakeEngine, ThreadCarrier


class ServedEngine:
    """An engine server with a thread and loop of its own."""

    def __init__(self, make_engine: MakeEngine, path: Path) -> None:
        self.path = path
        self._make_engine = make_engine
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: EngineServer | None = None
        self._thread: Thread | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        ready = asyncio.run(self._spawn())
        assert ready

    async def _spawn(self) -> bool:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        on_ready = lambda: loop.call_soon_threadsafe(ready.set)  # noqa: E731
        self._thread = Thread(target=self._run, args=(on_ready,), daemon=True)
        self._thread.start()
        await asyncio.wait_for(ready.wait(), 60)
        return True

    def _run(self, on_ready: Callable[[], object]) -> None:
        asyncio.run(self._main(on_ready))

    async def _main(self, on_ready: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = EngineServer(ThreadCarrier(self._make_engine), self.path)
        try:
            await self._server.serve(lambda: (on_ready(), None)[1])
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        if self._loop is not None and self._server is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._server.stop)
        if self._thread is not None:
            self._thread.join(10)
            assert not self._thread.is_alive()


@pytest.fixture
def private_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ph") as folder:
        os.chmod(folder, 0o700)
        yield Path(folder)

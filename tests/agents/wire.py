"""The real HTTP service on loopback around a scripted engine, and a relay that can break links."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from livekit.agents.utils.aio import cancel_and_wait

from playhead.worker.client import EngineClient
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from tests.agents.fakes import Answer, ScriptedCarrier, WordSpeaker, until


class WiredEngine:
    """A scripted engine behind the service; its script may be changed at any time."""

    def __init__(self, options: HttpOptions) -> None:
        self.carrier = ScriptedCarrier(WordSpeaker())
        self.client = EngineClient(self.carrier)
        self.client.start()
        self.service = Service(self.client, options)
        self.url = ""

    def play(self, answer: Answer) -> ScriptedCarrier:
        """Change the script and forget what went before."""
        self.carrier.answer = answer
        self.carrier.sent.clear()
        return self.carrier


@asynccontextmanager
async def serving(options: HttpOptions | None = None) -> AsyncIterator[WiredEngine]:
    """Serve a scripted engine until the context ends."""
    engine = WiredEngine(options or HttpOptions())
    runner = web.AppRunner(
        build_app(engine.service), access_log=None, handler_cancellation=True, shutdown_timeout=1
    )
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    warm = asyncio.create_task(engine.service.keep_warm())
    try:
        await until(lambda: engine.service.ready)
        yield engine
    finally:
        await runner.cleanup()
        await cancel_and_wait(warm)


class Relay:
    """Passes bytes between a client and a server; can cut links, or go silent like a lost network.

    A link that goes silent stays open on both sides: nobody is told.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self.num_links = 0
        self.cut_after_bytes: int | None = None
        """Cut a link once the server has sent so much over it."""

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "Relay":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await cancel_and_wait(*self._tasks)

    @property
    def num_open(self) -> int:
        return len(self._writers) // 2

    def cut(self) -> None:
        """Cut every link."""
        for writer in self._writers:
            writer.transport.abort()

    def silence(self) -> None:
        """Pass nothing on over the links there are; new ones work."""
        self._open.clear()
        self._open = asyncio.Event()
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_links += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._port)
        ours = {writer, up_writer}
        self._writers |= ours
        gate = self._open
        pipes = [
            asyncio.create_task(self._pipe(reader, up_writer, gate, None)),
            asyncio.create_task(self._pipe(up_reader, writer, gate, self.cut_after_bytes)),
        ]
        self._tasks |= set(pipes)
        await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        self._writers -= ours
        for each in ours:
            each.transport.abort()
        await asyncio.wait(pipes)
        self._tasks -= set(pipes)

    async def _pipe(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gate: asyncio.Event,
        limit: int | None,
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(4096):
                await gate.wait()
                if limit is not None:
                    data = data[:limit]
                    limit -= len(data)
                writer.write(data)
                await writer.drain()
                if limit == 0:
                    return

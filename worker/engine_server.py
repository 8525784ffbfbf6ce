"""Engine server: serves one engine to many connections over a private Unix socket.

Request ids of different connections never meet: inside they carry the connection's number. A
dropped connection cancels its requests; a lost engine closes every connection and ends `serve`.
"""

import asyncio
import logging
import os
import socket
import stat
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

from playhead.engine.errors import ConfigError, TransportError
from playhead.engine.messages import (
    Cancel,
    Command,
    Done,
    Failed,
    Pcm,
    Playback,
    Refused,
    Result,
    Submit,
)
from playhead.worker.carrier import Carrier, EngineStatus
from playhead.worker.interpreter import search_garbage
from playhead.worker.wire import FrameBuffer, encode

logger = logging.getLogger(__name__)

STATUS_S = 0.25
"""How often the load goes to the clients; agents' own load tick is 0.5 s."""
DRAIN_S = 30.0
"""How long live requests of a server that was asked to stop may go on."""
DRAINING = "draining"
MAX_UNSENT_BYTES = 32 << 20
"""A client that does not read its audio is dropped."""
SEND_BUFFER_BYTES = 4 << 20
"""A batch for 64 streams is half a megabyte and should leave in one piece. The system gives as much
of this as it allows."""
MAX_PATH_BYTES = 103 if sys.platform == "darwin" else 107
"""Longest path of a Unix socket: unix(7) and unix(4), less the byte that ends it."""
COMMANDS = get_args(Command)


class EngineServer:
    """Accepts connections on `path` and routes commands and results; lives on one loop."""

    def __init__(self, carrier: Carrier, path: Path) -> None:
        """Take a carrier that is not started yet."""
        self._carrier = carrier
        self._path = path
        self._connections: dict[int, _Connection] = {}
        self._num_accepted = 0
        self._waiting: deque[list[Result]] = deque()
        """Batches the engine's thread left here for the loop."""
        self._lost: str | None = None
        self._drain_end_s: float | None = None
        self._ended = asyncio.Event()

    async def serve(self, on_ready: Callable[[], None]) -> None:
        """Start the engine, serve until `stop` or the engine is lost (TransportError)."""
        check_length(self._path)
        check_private(self._path)
        loop = asyncio.get_running_loop()

        def on_results(results: list[Result]) -> None:
            self._waiting.append(results)
            if len(self._waiting) == 1:  # one thread calls this; else the loop was woken already
                loop.call_soon_threadsafe(self._deliver)

        def on_lost(reason: str) -> None:
            loop.call_soon_threadsafe(self._engine_lost, reason)

        await loop.run_in_executor(None, self._carrier.start, on_results, on_lost)
        self._path.unlink(missing_ok=True)
        old_umask = os.umask(0o177)
        try:
            server = await loop.create_unix_server(self._accept, str(self._path))
        finally:
            os.umask(old_umask)
        on_ready()
        try:
            await self._tell_status()
        finally:
            server.close()
            for connection in list(self._connections.values()):
                connection.drop("the engine server stops")
            self._path.unlink(missing_ok=True)
            await loop.run_in_executor(None, self._carrier.close)
        if self._lost is not None:
            raise TransportError(self._lost)

    def drain(self) -> None:
        """Refuse new requests, end `serve` when the live ones have ended; on its loop.

        Asked twice, it ends at once.
        """
        if self._drain_end_s is not None:
            self._ended.set()
            return
        self._drain_end_s = asyncio.get_running_loop().time() + DRAIN_S
        logger.info("draining, %d live", self._num_live)

    def stop(self) -> None:
        """End `serve`; call on its loop."""
        self._ended.set()

    @property
    def _num_live(self) -> int:
        return sum(len(connection.live) for connection in self._connections.values())

    @property
    def _drained(self) -> bool:
        end_s = self._drain_end_s
        if end_s is None:
            return False
        return self._num_live == 0 or asyncio.get_running_loop().time() > end_s

    def receive(self, connection: "_Connection", command: Command) -> None:
        """Pass a client's command on under the connection's own id space."""
        inner_id = connection.prefix + _request_id(command)
        if isinstance(command, Submit):
            if self._drain_end_s is not None:
                reason = "the engine is draining; another will take its place"
                refused = Refused(command.request_id, DRAINING, reason, retry_s=1.0)
                connection.write([encode(refused)])
                return
            connection.live.add(inner_id)
        self._carrier.send(_with_id(command, inner_id))

    def gone(self, connection: "_Connection") -> None:
        """Cancel what a dropped connection left behind."""
        self._connections.pop(connection.number, None)
        for inner_id in connection.live:
            try:
                self._carrier.send(Cancel(inner_id))
            except TransportError:
                return  # the engine is gone itself
        connection.live.clear()

    def _accept(self) -> "_Connection":
        self._num_accepted += 1
        connection = _Connection(self, self._num_accepted)
        self._connections[connection.number] = connection
        return connection

    def status(self) -> EngineStatus:
        """Return the engine's status, not ready while it drains."""
        status = self._carrier.status()
        return status if self._drain_end_s is None else replace(status, ready=False, load=1.0)

    def _deliver(self) -> None:
        """Send all that waits: one write for each connection."""
        results: list[Result] = []
        while self._waiting:
            results += self._waiting.popleft()
        frames: dict[int, list[bytes]] = {}
        for result in starters_first(results):
            prefix, _, request_id = result.request_id.partition(":")
            connection = self._connections.get(int(prefix))
            if connection is None:
                continue
            if isinstance(result, Refused | Done | Failed):
                connection.live.discard(result.request_id)
            frames.setdefault(connection.number, []).append(encode(result, request_id))
        for number, batch in frames.items():
            self._connections[number].write(batch)

    def _engine_lost(self, reason: str) -> None:
        self._lost = reason
        self._ended.set()

    async def _tell_status(self) -> None:
        while not (self._ended.is_set() or self._drained):
            frame = [encode(self.status())]
            for connection in list(self._connections.values()):
                connection.write(frame)
            if not self._num_live:
                search_garbage()
            try:
                await asyncio.wait_for(self._ended.wait(), STATUS_S)
            except TimeoutError:
                continue


class _Connection(asyncio.Protocol):
    """One client; lives on the server's loop."""

    def __init__(self, server: EngineServer, number: int) -> None:
        self._server = server
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self.number = number
        self.prefix = f"{number}:"
        self.live: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.write([encode(self._server.status())])

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._buffer.feed(data):
                if not isinstance(message, COMMANDS):
                    raise TransportError(f"{type(message).__name__} is no command")
                self._server.receive(self, message)
        except TransportError as error:
            self.drop(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.gone(self)

    def write(self, frames: list[bytes]) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.writelines(frames)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.drop("the client stopped reading")

    def drop(self, reason: str) -> None:
        logger.warning("connection %d dropped: %s", self.number, reason)
        if self._transport is not None:
            self._transport.abort()


def starters_first(results: list[Result]) -> list[Result]:
    """Return a batch with those first whose first audio it holds; each request keeps its order."""
    starters = {r.request_id for r in results if isinstance(r, Pcm) and not r.start_sample}
    if not starters:
        return results
    return sorted(results, key=lambda result: result.request_id not in starters)


def check_length(path: Path) -> None:
    """Refuse a path that no socket can have; raises ConfigError."""
    num_bytes = len(os.fsencode(path))
    if num_bytes > MAX_PATH_BYTES:
        raise ConfigError(
            f"the socket's path has {num_bytes} bytes, this system takes {MAX_PATH_BYTES}: {path}; "
            "choose a shorter one, or name a folder with a short path in TMPDIR"
        )


def check_private(path: Path) -> None:
    """Refuse a socket whose folder others may enter; raises ConfigError."""
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"folder of the socket does not exist: {folder}")
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & 0o077:
        raise ConfigError(f"folder of the socket has mode {mode:o}, allowed is 700: {folder}")


def _request_id(command: Command) -> str:
    return command.snapshot.request_id if isinstance(command, Playback) else command.request_id


def _with_id(command: Command, request_id: str) -> Command:
    if isinstance(command, Playback):
        return Playback(replace(command.snapshot, request_id=request_id))
    return replace(command, request_id=request_id)

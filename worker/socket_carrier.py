"""Carrier over a Unix socket: client side, on a thread of its own or on a loop that is given.

A lost connection fails what was live and is dialled again with growing pauses, so rooms outlive
an engine that its supervisor restarts. Commands meant for a lost connection are never replayed.
"""

import asyncio
import contextlib
import logging
import threading
from collections import deque
from concurrent import futures
from pathlib import Path

from playhead.engine.errors import TransportError
from playhead.engine.messages import Command, Result
from playhead.worker.carrier import EngineStatus, OnLost, OnResults, running_loop
from playhead.worker.wire import FrameBuffer, encode

logger = logging.getLogger(__name__)

CONNECT_S = 10.0
"""How long `start` waits for an engine that is already loaded."""
JOIN_S = 10.0
RETRY_MIN_S = 0.1
RETRY_MAX_S = 2.0
MAX_UNSENT_BYTES = 16 << 20
"""An engine that does not read its commands is taken for dead."""


class SocketCarrier:
    """A connection to an engine process of this machine."""

    def __init__(
        self,
        path: Path,
        connect_s: float = CONNECT_S,
        home: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Keep the socket's path; `start` connects.

        `home`: the running loop it lives on, where all its callbacks come: nothing is handed
        between threads if the callers are on it too. None makes a thread.
        """
        self._path = path
        self._home = home
        self._living: futures.Future[None] | None = None
        self._connect_s = connect_s
        self._lock = threading.Lock()
        self._unsent: deque[bytes] = deque()
        self._status = EngineStatus()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: _Connection | None = None
        self._answered = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    def start(self, on_results: OnResults, on_lost: OnLost) -> None:
        """Connect and wait for the engine's first status; not from the loop it lives on."""
        assert self._thread is None and self._living is None, "a carrier starts once"
        self._on_results, self._on_lost = on_results, on_lost
        if self._home is not None:
            self._living = asyncio.run_coroutine_threadsafe(self._main(), self._home)
        else:
            self._thread = threading.Thread(target=self._run, name="playhead-socket", daemon=True)
            self._thread.start()
        if not self._answered.wait(self._connect_s):
            self.close()
            raise TransportError(
                f"no engine answers at {self._path} within {self._connect_s:g} s; "
                "start one with: playhead engine --socket PATH"
            )

    def send(self, command: Command) -> None:
        """Queue a command; raises TransportError while no engine is connected."""
        frame = encode(command)
        with self._lock:
            if self._connection is None or self._loop is None:
                raise TransportError(f"no engine is connected at {self._path}; retry soon")
            here = self._loop is running_loop()
            wake = not (self._unsent or here)
            self._unsent.append(frame)
            if wake:
                self._loop.call_soon_threadsafe(self._flush)
        if here:
            self._flush()

    def status(self) -> EngineStatus:
        """Return the newest status the engine sent."""
        return self._status

    def close(self) -> None:
        """Disconnect and wait until it is done, unless called from where it would be done."""
        with self._lock:
            self._closing = True
            if self._loop is not None and self._stop is not None:
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)
        if self._living is not None and running_loop() is not self._home:
            futures.wait([self._living], JOIN_S)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        stop = asyncio.Event()
        with self._lock:
            self._loop, self._stop = asyncio.get_running_loop(), stop
            if self._closing:
                return
        try:
            await self._dial_until(stop)
        finally:
            with self._lock:
                self._loop = self._connection = None

    async def _dial_until(self, stop: asyncio.Event) -> None:
        pause_s = RETRY_MIN_S
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            try:
                _, connection = await loop.create_unix_connection(
                    lambda: _Connection(self), str(self._path)
                )
            except OSError:
                pause_s = min(pause_s * 2, RETRY_MAX_S)
            else:
                pause_s = RETRY_MIN_S
                await _either(stop, connection.lost)
                connection.abort()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause_s)

    def _flush(self) -> None:
        with self._lock:
            connection = self._connection
            frames = list(self._unsent)
            self._unsent.clear()
        if connection is not None and frames:
            connection.write(frames)

    def _connected(self, connection: "_Connection") -> None:
        with self._lock:
            self._connection = connection

    def _received(self, results: list[Result], status: EngineStatus | None) -> None:
        if status is not None:
            self._status = status
            self._answered.set()
        if results and not self._closing:
            self._on_results(results)

    def _disconnected(self, reason: str) -> None:
        with self._lock:
            self._connection = None
            self._unsent.clear()
            self._status = EngineStatus()
        if not self._closing:
            logger.warning("engine connection lost: %s", reason)
            self._on_lost(reason)


class _Connection(asyncio.Protocol):
    """One dialled connection; lives on the carrier's loop."""

    def __init__(self, carrier: SocketCarrier) -> None:
        self._carrier = carrier
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._problem = ""
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._carrier._connected(self)

    def data_received(self, data: bytes) -> None:
        results: list[Result] = []
        status: EngineStatus | None = None
        try:
            for message in self._buffer.feed(data):
                if isinstance(message, EngineStatus):
                    status = message
                else:
                    results.append(message)  # type: ignore[arg-type]  # an engine sends results
        except TransportError as error:
            self._problem = f"the engine sent a bad frame: {error}"
            self.abort()
        self._carrier._received(results, status)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        reason = self._problem or (f"{exc}" if exc else "the engine closed the connection")
        self._carrier._disconnected(reason)

    def write(self, frames: list[bytes]) -> None:
        assert self._transport is not None
        self._transport.writelines(frames)
        if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._problem = "the engine stopped reading"
            self.abort()

    def abort(self) -> None:
        assert self._transport is not None
        self._transport.abort()


async def _either(first: asyncio.Event, second: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(first.wait()), asyncio.ensure_future(second.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()

"""Outlet: the one task that writes to a WebSocket, so that nobody who reads ever waits to write.

Order is the order of the calls. Audio waits until the connection took it; events do not wait.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from playhead.worker.http.problem import Problem

MAX_QUEUED_EVENTS = 1_000
"""A client that asks for answers and reads none is dropped."""


@dataclass(frozen=True, slots=True)
class _Item:
    """One frame to write: an event, audio, or the answer to a ping."""

    payload: str | bytes
    pong: bool = False
    taken: asyncio.Future[None] | None = None
    on_written: Callable[[], None] | None = None


class Outlet:
    """Writes events and audio to one connection; on the connection's loop."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        """Take a prepared connection; `run` must run for anything to be written."""
        self._socket = socket
        self._request = request
        self._queue: deque[_Item] = deque()
        self._filled = asyncio.Event()

    def event(self, kind: str, **fields: Any) -> None:
        """Queue a JSON event; fields that are None are left out."""
        body = {"type": kind, **{k: v for k, v in fields.items() if v is not None}}
        self._put(_Item(json.dumps(body, separators=(",", ":"))))

    def problem(
        self, problem: Problem, utterance: str | None = None, sequence: int | None = None
    ) -> None:
        """Queue an error event that names what it is about."""
        self.event(
            "error",
            utterance=utterance,
            sequence=sequence,
            retry_s=problem.retry_s,
            error=problem.body(),
        )

    def pong(self, payload: bytes) -> None:
        """Queue the answer to a ping frame."""
        self._put(_Item(payload, pong=True))

    async def audio(self, frame: bytes, on_written: Callable[[], None]) -> None:
        """Queue a binary frame; return when the connection took it.

        Cancelled before its turn, it is never sent; `on_written` is called only if it is.
        """
        taken = asyncio.get_running_loop().create_future()
        self._put(_Item(frame, taken=taken, on_written=on_written))
        await taken

    async def run(self) -> None:
        """Write until cancelled; raises ConnectionError when the client is gone."""
        while True:
            while self._queue:
                await self._write(self._queue.popleft())
            self._filled.clear()
            await self._filled.wait()

    def abort(self) -> None:
        """Drop the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _write(self, item: _Item) -> None:
        if item.taken is not None and item.taken.cancelled():
            return
        if item.on_written is not None:
            item.on_written()
        if isinstance(item.payload, str):
            await self._socket.send_str(item.payload)
        elif item.pong:
            await self._socket.pong(item.payload)
        else:
            await self._socket.send_bytes(item.payload)
        if item.taken is not None and not item.taken.done():
            item.taken.set_result(None)

    def _put(self, item: _Item) -> None:
        if len(self._queue) >= MAX_QUEUED_EVENTS:
            self.abort()
            return
        self._queue.append(item)
        self._filled.set()

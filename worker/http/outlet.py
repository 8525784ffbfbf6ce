"""Outlet: what is written to a WebSocket, so that nobody who reads ever waits to write.

Order is the order of the calls. Audio waits until the connection took it; events do not wait. A
client that keeps up gets its audio straight from the call; of one that is behind, a task waits.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from playhead.worker.http.problem import Problem

MAX_QUEUED_EVENTS = 1_000
"""A client that asks for answers and reads none is dropped."""


@dataclass(frozen=True, slots=True)
class _Item:
    """One frame to write: an event, audio (nothing, where it only waits), or a ping's answer."""

    payload: str | bytes
    pong: bool = False
    taken: asyncio.Future[None] | None = None
    on_written: Callable[[], None] | None = None


class Outlet:
    """Writes events and audio to one connection; on the connection's loop."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        """Take a prepared connection whose own writes never wait; `run` must run beside it."""
        self._socket = socket
        self._request = request
        self._queue: deque[_Item] = deque()
        self._num_waiting = 0
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

    async def audio(
        self, frame: bytes, on_written: Callable[[], None], waiting: AbstractContextManager[None]
    ) -> None:
        """Write a binary frame; return when the connection took it.

        A wait for that is inside `waiting`. Cancelled before its turn, the frame is never sent;
        `on_written` is called only if it is. Raises ConnectionError when the client is gone.
        """
        item = _Item(frame, on_written=on_written)
        if not self._behind():
            while self._queue:
                await self._write(self._queue.popleft())
            await self._write(item)
            if not self._behind():
                return
            item = _Item(b"")
        with waiting:
            self._num_waiting += 1
            try:
                taken = asyncio.get_running_loop().create_future()
                self._put(replace(item, taken=taken))
                await taken
            finally:
                self._num_waiting -= 1

    async def run(self) -> None:
        """Write until cancelled; raises ConnectionError when the client is gone."""
        while True:
            while self._queue:
                item = self._queue.popleft()
                await self._write(item)
                await self._request.writer.drain()  # only here: it ends for all who wait there
                if item.taken is not None and not item.taken.done():
                    item.taken.set_result(None)
            self._filled.clear()
            await self._filled.wait()

    def _behind(self) -> bool:
        """Say whether anything waits for the client to take it."""
        transport = self._request.transport
        return transport is None or self._num_waiting > 0 or transport.get_write_buffer_size() > 0

    def abort(self) -> None:
        """Drop the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def _write(self, item: _Item) -> None:
        """Hand one frame to the connection, which takes it without a wait."""
        if item.taken is not None and item.taken.cancelled():
            return
        if item.on_written is not None:
            item.on_written()
        if isinstance(item.payload, str):
            await self._socket.send_str(item.payload)
        elif item.pong:
            await self._socket.pong(item.payload)
        elif item.payload:
            await self._socket.send_bytes(item.payload)

    def _put(self, item: _Item) -> None:
        if len(self._queue) >= MAX_QUEUED_EVENTS:
            self.abort()
            return
        self._queue.append(item)
        self._filled.set()

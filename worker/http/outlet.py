"""Outlet: the one task that writes to a WebSocket, so that nobody who reads ever waits to write.

Order is the order of the calls. Audio waits until the connection took it; events do not wait.
"""

import asyncio
import json
from collections import deque
from typing import Any

from aiohttp import web

MAX_QUEUED_EVENTS = 1_000
"""A client that asks for answers and reads none is dropped."""


class Outlet:
    """Writes events and audio to one connection; on the connection's loop."""

    def __init__(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        """Take a prepared connection; `run` must run for anything to be written."""
        self._socket = socket
        self._request = request
        self._queue: deque[tuple[str | bytes, asyncio.Future[None] | None]] = deque()
        self._filled = asyncio.Event()

    def event(self, kind: str, **fields: Any) -> None:
        """Queue a JSON event."""
        body = {"type": kind, **{k: v for k, v in fields.items() if v is not None}}
        self._put(json.dumps(body, separators=(",", ":")), None)

    async def audio(self, frame: bytes) -> None:
        """Queue a binary frame; return when the connection took it. Cancelled: never sent."""
        taken = asyncio.get_running_loop().create_future()
        self._put(frame, taken)
        await taken

    async def run(self) -> None:
        """Write until cancelled; raises ConnectionError when the client is gone."""
        while True:
            while self._queue:
                payload, taken = self._queue.popleft()
                if taken is not None and taken.cancelled():
                    continue
                if isinstance(payload, bytes):
                    await self._socket.send_bytes(payload)
                else:
                    await self._socket.send_str(payload)
                if taken is not None and not taken.done():
                    taken.set_result(None)
            self._filled.clear()
            await self._filled.wait()

    async def empty(self) -> None:
        """Write what is queued, without `run`: the last words before a close."""
        while self._queue:
            payload, taken = self._queue.popleft()
            if taken is None and isinstance(payload, str):
                await self._socket.send_str(payload)

    def abort(self) -> None:
        """Drop the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    def _put(self, payload: str | bytes, taken: "asyncio.Future[None] | None") -> None:
        if len(self._queue) >= MAX_QUEUED_EVENTS:
            self.abort()
            return
        self._queue.append((payload, taken))
        self._filled.set()

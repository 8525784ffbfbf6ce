"""A service on a real socket that answers as told: speaks, drops, refuses, breaks off, hangs.

Which: by the request's number, through `plan`'s seed. Runs on a thread of the test's process.
"""

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from aiohttp import WSMsgType, web

from playhead.worker.http.messages import PROTOCOL

FRAME = bytes(range(256)) * 15
Answer = Callable[[int], str]
"""Seed of the request -> speak, late, refuse, break, never or error."""


class FakeService:
    """Counts what was asked; speaks one frame at once and the rest in time."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.asked: Counter[str] = Counter()
        self.texts: list[str] = []
        self.url = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serve on a free port; yields the address."""
        ready, loop = threading.Event(), asyncio.new_event_loop()
        stop = asyncio.Event()

        async def serve() -> None:
            app = web.Application()
            app.add_routes([web.post("/v1/audio/speech", self._speech),
                            web.get("/v1/audio/speech/ws", self._socket)])  # fmt: skip
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            ready.set()
            await stop.wait()
            await runner.cleanup()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        assert ready.wait(30)
        try:
            yield self.url
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()

    async def _speech(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["stream"] and body["response_format"] == "pcm"
        kind = self._note(body["seed"], body["input"])
        if kind == "refuse":
            return web.json_response({"error": {"code": "busy"}}, status=503)
        if kind == "error":
            return web.json_response({"error": {"code": "x"}}, status=500)
        if kind == "never":
            await asyncio.sleep(3600)
        response = web.StreamResponse()
        await response.prepare(request)
        for index in range(body["max_new_tokens"]):
            if kind == "break" and index == 2:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(FRAME)
            if kind == "late" and index == 1:
                await asyncio.sleep(0.4)
        await response.write_eof()
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        await socket.send_json({"type": "session.created"})
        start: dict[str, int] = {}
        async for message in socket:
            if message.type is not WSMsgType.TEXT:
                break
            told = json.loads(message.data)
            if told["type"] == "utterance.start":
                start = told
            elif told["type"] == "text.append":
                kind = self._note(start["seed"], told["text"])
            elif told["type"] == "text.end":
                if kind == "refuse":
                    error = {"code": "busy", "message": "full"}
                    await socket.send_json({"type": "error", "error": error})
                    break
                if kind == "break":
                    break
                for _ in range(start["max_new_tokens"]):
                    await socket.send_bytes(b"\x01\x01" + bytes(14) + FRAME)
                await socket.send_json({"type": "utterance.done", "reason": "length"})
        return socket

    def _note(self, seed: int, text: str) -> str:
        kind = self._answer(seed)
        self.asked[kind] += 1
        self.texts.append(text)
        return kind

"""A server that breaks the protocol: one clear error at once, and nothing is left behind."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from livekit.agents import APIConnectionError, APIConnectOptions
from livekit.plugins import playhead

from playhead.engine.units import FRAME_SAMPLES
from playhead.worker.http.messages import AUDIO_HEADER, AUDIO_PCM, AUDIO_VERSION, PROTOCOL
from tests.agents.fakes import frame_pcm, samples_of

Script = Callable[[web.WebSocketResponse], Awaitable[None]]
HELLO = {
    **{"type": "session.created", "limits": {"utterances": 8}, "model": "m"},
    **{"voices": ["a"], "languages": ["english"], "exact_times": True},
}
PATIENT = APIConnectOptions(max_retry=0, timeout=30)
"""Longer than the test may take: nothing here is found out by waiting."""
FRAME = AUDIO_HEADER.pack(AUDIO_VERSION, AUDIO_PCM, 0, 1, 0) + frame_pcm(0)


@asynccontextmanager
async def speaking_to(script: Script) -> AsyncIterator[playhead.TTS]:
    """Serve one script a connection, and keep the connection until the client ends it."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=[PROTOCOL])
        await socket.prepare(request)
        await script(socket)
        async for _ in socket:
            pass
        return socket

    app = web.Application()
    app.router.add_get("/v1/audio/speech/ws", handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    voice = playhead.TTS(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        yield voice
    finally:
        await voice.aclose()
        await runner.cleanup()


async def hear(voice: playhead.TTS, heard: bytearray) -> None:
    async with voice.stream(conn_options=PATIENT) as stream:
        stream.push_text("one two")
        stream.end_input()
        async for audio in stream:
            heard.extend(samples_of([audio.frame]))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("hello", ["hi", "[1]", "{}", '{"limits": 5}', b"1"], ids=str)
async def test_what_is_no_playhead_server_is_named_at_once(hello: str | bytes) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await (socket.send_str(hello) if isinstance(hello, str) else socket.send_bytes(hello))

    async with speaking_to(script) as voice:
        with pytest.raises(APIConnectionError, match="no playhead server") as raised:
            await hear(voice, bytearray())
        assert raised.value.retryable


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "wrong",
    [
        *("no json", "[1, 2]", {"no": "type"}, {"type": "utterance.created"}, {"type": "error"}),
        *({"type": "words", "words": [{"text": "x"}]}, {"type": "utterance.done"}, b"1"),
    ],
    ids=str,
)
@pytest.mark.parametrize("audible", [False, True])
async def test_a_message_nobody_understands_ends_the_connection_at_once(
    wrong: str | bytes | dict[str, Any], audible: bool
) -> None:
    async def script(socket: web.WebSocketResponse) -> None:
        await socket.send_json(HELLO)
        start = json.loads(await socket.receive_str())
        about = {"utterance": start["utterance"]}
        if audible:
            await socket.send_json({"type": "utterance.created", **about, "number": 1})
            await socket.send_json({"type": "utterance.accepted", **about})
            await socket.send_bytes(FRAME)
        if isinstance(wrong, dict):
            await socket.send_json({**wrong, **about})
        else:
            await (socket.send_str(wrong) if isinstance(wrong, str) else socket.send_bytes(wrong))

    async with speaking_to(script) as voice:
        heard = bytearray()
        with pytest.raises(APIConnectionError, match="has not") as raised:
            await hear(voice, heard)
        assert raised.value.retryable is not audible
        assert len(heard) <= 2 * FRAME_SAMPLES and not voice._engine.ready

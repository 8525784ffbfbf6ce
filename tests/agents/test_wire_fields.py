"""What the socket tells of the engine and of who listens: exact word times, live or not."""

import json
from typing import Any

import aiohttp
import pytest
from livekit.plugins import playhead

from playhead.engine.messages import Submit
from playhead.worker.http.messages import PROTOCOL
from tests.agents.fakes import until
from tests.agents.wire import serving


@pytest.mark.parametrize("exact", [True, False])
async def test_a_connected_server_says_whether_its_word_times_are_exact(exact: bool) -> None:
    async with serving() as engine:
        engine.carrier.exact_times = exact
        voice = playhead.TTS(base_url=engine.url)
        voice.prewarm()
        await until(lambda: voice._engine.ready)
        async with voice.stream():
            assert voice.capabilities.aligned_transcript is exact
        await voice.aclose()


@pytest.mark.parametrize("controls", [{}, {"live": True}, {"live": False}], ids=str)
async def test_only_a_live_utterance_has_playback(controls: dict[str, bool]) -> None:
    live = controls.get("live", True)
    async with serving() as engine, aiohttp.ClientSession() as session:
        engine.carrier.sent.clear()
        engine.carrier.playbacks.clear()
        socket = await session.ws_connect(f"{engine.url}/v1/audio/speech/ws", protocols=[PROTOCOL])
        await socket.send_json({"type": "utterance.start", "utterance": "a", **controls})
        await socket.send_json(
            {"type": "text.append", "utterance": "a", "sequence": 0, "text": "one two "}
        )
        report = {"type": "playback.report", "utterance": "a", "played_samples": 0}
        await socket.send_json(report)
        await socket.send_json({"type": "text.end", "utterance": "a", "sequence": 1})
        events = await read(socket, "utterance.done")
        assert [submit.live for submit in engine.carrier.of(Submit)] == [live]
        assert bool(engine.carrier.playbacks) is live
        done = events[-1]
        assert {"played_samples", "heard_text", "playback"} & set(done) == (
            {"played_samples", "heard_text", "playback"} if live else set()
        )
        errors = [event["error"]["code"] for event in events if event["type"] == "error"]
        assert errors == ([] if live else ["invalid_playback"])
        await socket.send_json({"type": "utterance.start", "utterance": "b", "live": "no"})
        (*_, refused) = await read(socket, "error")
        assert refused["error"]["param"] == "live"
        await socket.close()


async def read(socket: aiohttp.ClientWebSocketResponse, last: str) -> list[dict[str, Any]]:
    """Return the events up to one of a type."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != last:
        message = await socket.receive(timeout=30)
        if message.type is aiohttp.WSMsgType.TEXT:
            events.append(json.loads(message.data))
    return events

"""Speech that went on behind its text: what ended it reaches every kind of client."""

import json
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from livekit.agents import APIConnectOptions
from livekit.plugins import playhead
from livekit.plugins.playhead.attempt import Attempt
from livekit.plugins.playhead.streams import USERDATA_ATTEMPT

from playhead.engine.messages import Command, Done, Result, Submit
from playhead.worker.http.messages import PROTOCOL
from tests.agents.fakes import WordSpeaker
from tests.agents.test_wire_fields import read
from tests.agents.wire import serving

ONCE = APIConnectOptions(max_retry=0, timeout=60)


class Runaway(WordSpeaker):
    """Speaks what has a "!" on until it is stopped; a limit ends what has two."""

    def __init__(self) -> None:
        super().__init__()
        self._shouted: dict[str, str] = {}

    def __call__(self, command: Command) -> list[Result]:
        text = getattr(command, "text", "")
        self._shouted[command.request_id] = self._shouted.get(command.request_id, "") + text
        return [self._marked(result) for result in super().__call__(command)]

    def _marked(self, result: Result) -> Result:
        shouted = self._shouted[result.request_id].count("!")
        if not isinstance(result, Done) or not shouted:
            return result
        if shouted == 1:
            return replace(result, guard="repetition")
        return replace(result, reason="length", guard="silence")


@pytest.mark.parametrize(
    ("text", "reason", "guard"),
    [("one two", "stop", None), ("one !", "stop", "repetition"), ("one !!", "length", "silence")],
)
async def test_guard_when_over_http(text: str, reason: str, guard: str | None) -> None:
    async with serving() as engine, aiohttp.ClientSession() as session:
        engine.play(Runaway())
        url, body = f"{engine.url}/v1/audio/speech", {"input": text, "response_format": "pcm"}
        async with session.post(url, json={**body, "stream": False}) as file:
            assert file.headers["X-Playhead-Stop"] == reason
            assert file.headers.get("X-Playhead-Guard") == guard
        async with session.post(url, json={**body, "stream_format": "sse"}) as stream:
            events = [
                json.loads(line.removeprefix("data: "))
                for line in (await stream.text()).splitlines()
                if line
            ]
        assert events[-1]["type"] == "speech.audio.done"
        assert (events[-1]["stop_reason"], events[-1].get("guard")) == (reason, guard)


async def spoken(texts: list[str]) -> dict[str, Any]:
    """Speak texts with a flush between; return the utterance's done."""
    async with serving() as engine, aiohttp.ClientSession() as session:
        engine.play(Runaway())
        socket = await session.ws_connect(f"{engine.url}/v1/audio/speech/ws", protocols=[PROTOCOL])
        await socket.send_json({"type": "utterance.start", "utterance": "a"})
        about, sequence = {"utterance": "a"}, 0
        for text in texts:
            for message in ({"type": "text.append", "text": text}, {"type": "text.flush"}):
                await socket.send_json({**about, **message, "sequence": sequence})
                sequence += 1
        await socket.send_json({"type": "text.end", **about, "sequence": sequence})
        events = await read(socket, "utterance.done")
        await socket.close()
        return events[-1]


@pytest.mark.parametrize(
    ("texts", "reason", "guard"),
    [
        (["one "], "stop", None),
        (["one ! ", "two "], "stop", "repetition"),
        (["one ! ", "two !! "], "length", "repetition"),
    ],
)
async def test_guard_when_over_a_socket(texts: list[str], reason: str, guard: str | None) -> None:
    """It is the first of an utterance's parts, whatever follows."""
    done = await spoken(texts)
    assert (done["reason"], done.get("guard")) == (reason, guard)


@pytest.mark.parametrize("remote", [True, False])
@pytest.mark.parametrize(("text", "guard"), [("one two", ""), ("one !!", "silence")])
async def test_guard_when_in_the_framework(
    text: str, guard: str, remote: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as engine:
        engine.play(Runaway())
        where: dict[str, Any] = {"base_url": engine.url} if remote else {"engine": engine.client}
        voice = playhead.TTS(**where)
        attempts: list[Attempt] = []
        async with voice.stream(conn_options=ONCE) as stream:
            stream.push_text(text)
            stream.end_input()
            async for audio in stream:
                attempts.append(audio.frame.userdata[USERDATA_ATTEMPT])
        assert len(set(map(id, attempts))) == 1 and attempts[0].guard == guard
        told = [each for each in caplog.records if "went on behind its text" in each.message]
        assert len(told) == bool(guard)
        assert all(attempts[0].request_id == each.__dict__["request_id"] for each in told)
        assert engine.carrier.of(Submit)
        await voice.aclose()

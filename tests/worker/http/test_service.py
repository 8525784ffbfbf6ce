"""Readiness, engine faults and busy engines, with a scripted engine behind real sockets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestClient, TestServer

from playhead.engine.messages import Submit
from playhead.worker.client import EngineClient
from playhead.worker.http import service as service_module
from playhead.worker.http import websocket
from playhead.worker.http.keys import KeyLimits
from playhead.worker.http.messages import PROTOCOL
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from playhead.worker.http.voices import OPENAI_VOICES
from playhead.worker.http.websocket import MAX_PROBLEMS
from playhead.worker.thread_carrier import ThreadCarrier
from playhead.worker.tracing import Traced, Traces
from tests.fakes import FRAMES_PER_WORD, ScriptedEngine

PATH = "/v1/audio/speech"


class Scripted(ScriptedEngine):
    exact_times = False


@dataclass
class Desk:
    """A service, its engine and a client of it."""

    service: Service
    engines: list[ScriptedEngine]
    http: Any

    async def post(self, text: str, **fields: Any) -> Any:
        return await self.http.post(PATH, json={"input": text, **fields})

    async def until_ready(self) -> None:
        for _ in range(600):
            if self.service.ready:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("never ready")


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    engines: list[ScriptedEngine] = []

    def make(on_results: Any) -> Any:
        engines.append(Scripted(on_results))
        return engines[-1]

    client = EngineClient(ThreadCarrier(make))
    service = Service(client, HttpOptions())
    async with TestClient(TestServer(build_app(service), handler_cancellation=True)) as http:
        yield Desk(service, engines, http)
        client.close()


@contextlib.asynccontextmanager
async def warming(service: Service) -> AsyncIterator[None]:
    task = asyncio.create_task(service.keep_warm())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_nothing_is_served_before_the_engine_and_a_warm_up(desk: Desk) -> None:
    assert (await desk.http.get("/health")).status == 200
    for answer in (await desk.http.get("/ready"), await desk.post("hello")):
        assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1
        assert (await answer.json())["error"]["code"] == "not_ready"
    desk.service.client.start()
    assert (await desk.http.get("/ready")).status == 503, "no utterance was spoken yet"
    async with warming(desk.service):
        await desk.until_ready()
        assert (await desk.http.get("/ready")).status == 200
        assert (await desk.post("hello", response_format="wav")).status == 200
        desk.service.draining = True
        assert (await desk.post("hello")).status == 503


async def test_a_warm_up_that_fails_is_told_once_and_nothing_is_ready(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "WARM_TEXT", "!fail ")
    monkeypatch.setattr(service_module, "POLL_S", 0.001)
    desk.service.client.start()
    async with warming(desk.service):
        while len([each for each in desk.engines[0].seen if isinstance(each, Submit)]) < 5:
            await asyncio.sleep(0.01)
        assert (await desk.http.get("/ready")).status == 503
    assert caplog.text.count("the warm-up failed, told to fail") == 1


async def test_what_the_engine_refuses_costs_a_key_nothing(desk: Desk) -> None:
    account = desk.service.keys.account(None)
    account.limits = KeyLimits(chars_per_minute=100)
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        for _ in range(4):  # 30 characters each
            assert (await desk.post("!busy ".ljust(30, "x"))).status == 503
        socket = await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL])
        for name in "abcd":
            await socket.send_json({"type": "utterance.start", "utterance": name})
            text = {"type": "text.append", "utterance": name, "sequence": 0}
            await socket.send_json(text | {"text": "!busy ".ljust(30, "x")})
            while (told := await socket.receive_json(timeout=20))["type"] != "utterance.done":
                assert told["type"] != "error" or told["error"]["code"] == "busy"
        await socket.close()
        assert (await desk.post("word " * 18)).status == 200
        assert (await desk.post("word " * 18)).status == 429, "that was taken, and is paid"


async def test_each_utterance_has_a_trace_of_its_own_whatever_clients_call_it(desk: Desk) -> None:
    heard: dict[str, int] = {}

    class Trace(Traced):
        def audio(self) -> None:
            heard[self.request_id] += 1

    class Kept(Traces):
        @contextlib.contextmanager
        def utterance(self, request_id: str, live: bool) -> Iterator[Traced]:
            trace = Trace(None, request_id, live)
            trace.request_id = request_id
            heard.setdefault(request_id, 0)
            yield trace

    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        desk.service.traces = Kept()
        sockets = [await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL]) for _ in "12"]
        sessions = [(await each.receive_json(timeout=20))["session"] for each in sockets]
        for sequence, text in enumerate(("one ", "two ")):
            for each in sockets:
                if not sequence:
                    await each.send_json({"type": "utterance.start", "utterance": "a"})
                append = {"type": "text.append", "utterance": "a", "text": text}
                await each.send_json(append | {"sequence": sequence})
                while (await each.receive(timeout=20)).type is not WSMsgType.BINARY:
                    continue
        assert heard == {f"{session}-a": 2 for session in sessions}
        for each in sockets:
            await each.close()


async def test_instructions_of_an_utterance_are_paid_like_those_of_a_request(desk: Desk) -> None:
    account = desk.service.keys.account(None)
    account.limits = KeyLimits(chars_per_minute=100)
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        socket = await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL])
        start = {"type": "utterance.start", "instructions": "x" * 60}
        for name in "ab":
            await socket.send_json(start | {"utterance": name})
        told = [await socket.receive_json(timeout=20) for _ in range(3)]
        assert [each["type"] for each in told[1:]] == ["utterance.created", "error"]
        assert told[2]["error"]["code"] == "rate_limit_exceeded" and told[2]["retry_s"] > 0
        assert account.num_streams == desk.service.counters.live_utterances == 1
        await socket.close()


@pytest.mark.slow
async def test_speech_under_way_is_not_idle(desk: Desk) -> None:
    desk.service.options = replace(desk.service.options, idle_s=1.5)
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        socket = await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL])
        await socket.send_json({"type": "utterance.start", "utterance": "a"})
        text = {"type": "text.append", "utterance": "a", "sequence": 0, "text": "tone " * 16}
        await socket.send_json(text)  # paced: its last word goes out more than 2.5 s later
        events: list[Any] = []
        while not events or events[-1]["type"] != "utterance.done":
            message = await socket.receive(timeout=30)
            events += [message.json()] if message.type is WSMsgType.TEXT else []
        assert [each["type"] for each in events[-3:]] == ["text.starved", "error", "utterance.done"]
        assert events[-2]["error"]["code"] == "input_timeout"
        assert events[-1]["num_samples"] == 16 * FRAMES_PER_WORD * 1920, "all of it was said"
        await socket.close()


async def test_a_server_that_goes_away_tells_all_at_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    async def takes_nothing(_: web.WebSocketResponse, *, code: int, message: bytes) -> None:
        told.append(code)
        await asyncio.sleep(600)

    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        for _ in range(3):
            await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL])
        with monkeypatch.context() as patched:
            patched.setattr(web.WebSocketResponse, "close", takes_nothing)
            patched.setattr(websocket, "CLOSE_S", 600.0)
            shutting = asyncio.create_task(desk.http.app.shutdown())
            async with asyncio.timeout(20):
                while len(told) < 3:
                    await asyncio.sleep(0.01)
            assert told == [1001] * 3 and not shutting.done()
            shutting.cancel()
            await asyncio.wait([shutting])


async def test_readiness_ends_with_the_engine(desk: Desk) -> None:
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        desk.engines[0].stop()
        for _ in range(300):
            if (await desk.http.get("/ready")).status == 503:
                break
            await asyncio.sleep(0.02)
        answer = await desk.post("hello")
        assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(
    ("text", "status", "code"), [("!busy ", 503, "busy"), ("!fail ", 500, "engine_failure")]
)
async def test_faults_of_the_engine_are_told(desk: Desk, text: str, status: int, code: str) -> None:
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        answer = await desk.post(text, response_format="pcm")
        assert (answer.status, (await answer.json())["error"]["code"]) == (status, code)
        assert ("Retry-After" in answer.headers) is (status == 503)
        assert (await desk.post("and on", response_format="pcm")).status == 200


async def test_utterances_of_a_connection_are_spoken_at_the_same_time(desk: Desk) -> None:
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        socket = await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL])
        names = ("a", "b", "c")
        for name in names:
            await socket.send_json({"type": "utterance.start", "utterance": name})
            text = {"type": "text.append", "utterance": name, "sequence": 0, "text": "one two "}
            await socket.send_json(text)
        starved: set[str] = set()
        while len(starved) < len(names):  # all three are open, and spoken so far
            message = await socket.receive(timeout=10)
            if message.type is WSMsgType.TEXT and message.json()["type"] == "text.starved":
                starved.add(message.json()["utterance"])
        assert desk.service.counters.live_utterances == len(names)
        failing = {"type": "text.append", "utterance": "b", "sequence": 1, "text": "!fail "}
        await socket.send_json(failing)
        for name in names:
            end = {"type": "text.end", "utterance": name, "sequence": 1 + (name == "b")}
            await socket.send_json(end)
        reasons: dict[str, str] = {}
        while len(reasons) < len(names):
            message = await socket.receive(timeout=10)
            if message.type is WSMsgType.TEXT and message.json()["type"] == "utterance.done":
                reasons[message.json()["utterance"]] = message.json()["reason"]
        assert reasons == {"a": "stop", "b": "failed", "c": "stop"}
        assert desk.service.counters.live_utterances == 0
        await socket.close()


async def test_a_stream_that_breaks_says_so(desk: Desk) -> None:
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        answer = await desk.post("one two !fail ", response_format="pcm", stream_format="sse")
        body = await answer.text()
        assert '"type":"error"' in body and "speech.audio.done" not in body
        broken = await desk.post("one two !fail ", response_format="pcm")
        with pytest.raises(Exception, match=r"payload|closed|reset|Disconnected"):
            await broken.read()
        assert (await desk.post("and on", response_format="pcm")).status == 200


async def test_voices_and_models_are_listed_under_every_name(desk: Desk) -> None:
    desk.service.client.start()
    voices = await (await desk.http.get("/v1/voices")).json()
    owner = {each["id"]: each["alias_of"] for each in voices["data"]}
    assert owner.pop("tone") is None
    assert owner == dict.fromkeys(OPENAI_VOICES, "tone")
    assert voices["languages"] == ["auto", "english"]
    models = await (await desk.http.get("/v1/models")).json()
    assert {"tts-1", "tts-1-hd", "gpt-4o-mini-tts"} <= {each["id"] for each in models["data"]}
    for each in models["data"]:
        assert await (await desk.http.get(f"/v1/models/{each['id']}")).json() == each


async def test_a_client_that_is_refused_too_often_is_closed(desk: Desk) -> None:
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        socket = await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL])
        for _ in range(MAX_PROBLEMS + 1):
            await socket.send_str("{")
        codes = []
        while (message := await socket.receive(timeout=20)).type is WSMsgType.TEXT:
            codes.append(message.json().get("error", {}).get("code"))
        assert codes[1:] == ["invalid_json"] * (MAX_PROBLEMS + 1) + ["too_many_errors"]
        assert socket.close_code == 1008


async def test_a_client_that_answers_no_ping_is_dropped(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "HEARTBEAT_S", 0.2)
    desk.service.client.start()
    async with warming(desk.service):
        await desk.until_ready()
        socket = await desk.http.ws_connect(f"{PATH}/ws", protocols=[PROTOCOL], autoping=False)
        kinds = []
        while not socket.closed:
            kinds.append((await socket.receive(timeout=20)).type)
        assert kinds[:2] == [WSMsgType.TEXT, WSMsgType.PING]
        async with asyncio.timeout(20):
            while desk.service.counters.connections:
                await asyncio.sleep(0.02)

"""The service behind a real broken network: latency, pieces, resets, half-open, slow readers.

The engine is scripted, so that what is awaited never depends on how fast this machine speaks;
`make soak` sends the same faults to the real one.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from playhead.engine.messages import Cancel
from playhead.worker.client import EngineClient
from playhead.worker.demo.parts import PartMissing
from playhead.worker.http.messages import PROTOCOL
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from playhead.worker.thread_carrier import ThreadCarrier
from tests.fakes import FRAME, FRAMES_PER_WORD, ScriptedEngine
from tests.toxiproxy import Line, Toxiproxy, toxiproxy
from tests.worker.http.test_websocket import Talk

pytestmark = pytest.mark.slow

PATH = "/v1/audio/speech"
WORD_BYTES = len(FRAME) * FRAMES_PER_WORD
SECOND_BYTES = 48_000
LONG_WORDS = 250
"""A minute."""
IDLE_S = 1.0


@dataclass
class Desk:
    """A service on a real port, its engine, and a harmed line to it."""

    service: Service
    engine: ScriptedEngine
    url: str
    line: Line
    http: aiohttp.ClientSession

    @property
    def num_cancelled(self) -> int:
        cancels = [each for each in self.engine.seen if isinstance(each, Cancel)]
        return sum("probe" not in each.request_id for each in cancels)  # the service's own

    @property
    def num_live(self) -> int:
        return self.service.counters.live_utterances

    def post(self, url: str, num_words: int, **fields: Any) -> Any:
        body = {"input": "tone " * num_words, "response_format": "pcm", **fields}
        return self.http.post(f"{url}{PATH}", json=body)

    @contextlib.asynccontextmanager
    async def talk(self) -> AsyncIterator[Talk]:
        async with self.http.ws_connect(self.line.socket_url, protocols=[PROTOCOL]) as socket:
            yield Talk(socket)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.02)

    async def at_rest(self) -> None:
        await self.until(lambda: not (self.num_live or self.service.counters.connections))
        await self.until(lambda: not self.engine._live)


@pytest.fixture(scope="module")
def network() -> Iterator[Toxiproxy]:
    try:
        with toxiproxy() as running:
            yield running
    except PartMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
async def desk(network: Toxiproxy) -> AsyncIterator[Desk]:
    engines: list[ScriptedEngine] = []

    def make(on_results: Any) -> Any:
        engines.append(ScriptedEngine(on_results))
        return engines[-1]

    client = EngineClient(ThreadCarrier(make))
    service = Service(client, HttpOptions(idle_s=IDLE_S))
    server = TestServer(build_app(service))
    await server.start_server()
    await asyncio.to_thread(client.start)
    warm = asyncio.create_task(service.keep_warm())
    url = str(server.make_url("")).rstrip("/")
    async with aiohttp.ClientSession() as session:
        desk = Desk(service, engines[0], url, network.line(server.port or 0), session)
        await desk.until(lambda: service.ready)
        yield desk
    warm.cancel()
    await server.close()
    await asyncio.to_thread(client.close)


async def test_delay_and_pieces_lose_and_double_nothing(desk: Desk) -> None:
    desk.line.harm("latency", latency=200, jitter=150)
    desk.line.harm("slicer", average_size=700, size_variation=600, delay=200)
    desk.line.harm("slicer", "upstream", average_size=20, size_variation=15, delay=1000)
    async with desk.post(desk.line.url, 6) as answer:
        assert await answer.read() == FRAME * FRAMES_PER_WORD * 6
    async with desk.talk() as talk:
        await talk.say("a", *"one two three ")
        done = await talk.done("a")
        assert done["reason"] == "stop"
        assert talk.samples(1) * 2 == done["num_samples"] * 2 == 3 * WORD_BYTES
        assert [each["sequence"] for each in talk.of("text.ack")] == list(range(15))


@pytest.mark.parametrize("over", ["http", "websocket"])
async def test_a_reset_ends_its_own_utterance_and_no_other(desk: Desk, over: str) -> None:
    async with contextlib.AsyncExitStack() as held:
        other = await desk.post(desk.url, 12)  # some seconds of a stream
        if over == "http":
            answer = await desk.post(desk.line.url, LONG_WORDS)
            assert answer.status == 200 and await answer.content.readany()
            desk.line.harm("reset_peer", timeout=0)
            with pytest.raises(aiohttp.ClientError):
                await answer.content.read()
        else:
            talk = await held.enter_async_context(desk.talk())
            await talk.say("a", "tone " * LONG_WORDS)
            await talk.until(lambda event: event["type"] == "words")
            desk.line.harm("reset_peer", timeout=0)
            while not talk.socket.closed:
                await talk.socket.receive(timeout=20)
        await desk.until(lambda: desk.num_cancelled == 1 and desk.num_live == 1)
        assert len(await other.read()) == 12 * WORD_BYTES
    await desk.at_rest()
    assert desk.num_cancelled == 1


async def test_half_open_connections_are_found_and_freed(desk: Desk) -> None:
    async with desk.talk() as talk:
        await talk.say("a", "tone ", end=False)
        await talk.until(lambda event: event["type"] == "text.starved")
        desk.line.harm("timeout", "downstream", timeout=0)  # from here on everything vanishes
        desk.line.harm("timeout", "upstream", timeout=0)
        await talk.send("text.end", "a", sequence=1)
        await desk.at_rest()
        assert desk.num_cancelled == 1 and not talk.socket.closed, "the client has closed nothing"


async def test_a_body_that_never_ends_is_given_up(desk: Desk) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", desk.line.port)
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 90\r\n\r\n{{".encode())
    async with asyncio.timeout(20):
        answer = await reader.readuntil(b"}}")
    assert answer.startswith(b"HTTP/1.1 408 ") and b'"code": "body_timeout"' in answer
    writer.close()


@pytest.mark.parametrize("over", ["http", "websocket"])
async def test_a_slow_reader_holds_back_its_own_speech_only(desk: Desk, over: str) -> None:
    """At 16 kB/s, a third of real time: its engine waits, others do not, a cancel is read."""
    desk.line.harm("bandwidth", rate=16)
    taken = 0

    def held_back() -> None:
        (live,) = desk.engine._live.values()
        ahead = live.num_samples * 2 - taken
        assert 0 < ahead < 12 * SECOND_BYTES, "far more than the target and all buffers"

    async with contextlib.AsyncExitStack() as held:
        if over == "http":
            answer = await desk.post(desk.line.url, LONG_WORDS)
            assert answer.status == 200
            while taken < SECOND_BYTES:
                taken += len(await answer.content.readany())
            held_back()
        else:
            talk = await held.enter_async_context(desk.talk())
            await talk.say("a", "tone " * LONG_WORDS)
            while taken < SECOND_BYTES:
                await talk.until(lambda event: event["type"] == "words")
                taken = sum(len(pcm) for _, _, pcm in talk.audio)
            held_back()
        async with desk.post(desk.url, 2, stream=False) as other:
            assert await other.read() == FRAME * FRAMES_PER_WORD * 2
        assert desk.num_live == 1
        if over == "http":
            answer.close()
        else:
            await talk.send("utterance.cancel", "a")
        await desk.until(lambda: desk.num_live == 0 and desk.num_cancelled == 1)
        if over == "websocket":  # a close would wait behind what is on its way
            talk.socket._response.connection.transport.abort()  # type: ignore[union-attr]
    await desk.at_rest()

"""What a chunk of a stream may cost: one write, no timer, nothing said to the engine."""

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aiohttp.http import StreamWriter
from aiohttp.test_utils import make_mocked_request

from playhead.engine.messages import Accepted, Done, Pcm, Submit
from playhead.worker.client import EngineClient
from playhead.worker.http.edge import REQUEST_ID
from playhead.worker.http.fields import SpeechRequest
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.outlet import Outlet
from playhead.worker.http.service import Service
from playhead.worker.http.speech_route import SpeechRoute
from playhead.worker.http.spoken import Spoken
from playhead.worker.socket_carrier import SocketCarrier, _Connection
from playhead.worker.wire import encode
from tests.garbage import left_behind

CHUNKS = 20


class Wire(asyncio.Transport):
    """Takes everything at once and counts how often it was given something."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def is_closing(self) -> bool:
        return False


class Side:
    """The protocol of the client's connection, as far as a stream asks for it."""

    ssl_context = peername = sockname = None
    _paused = False

    def __init__(self) -> None:
        self.transport = Wire()

    async def _drain_helper(self) -> None:
        raise AssertionError("nothing waits to be taken")


class Far:
    """An engine behind its connection, to be spoken for."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.wire = Wire()
        carrier = SocketCarrier(Path("none"), home=loop)
        self.client = EngineClient(carrier)
        carrier._on_results, carrier._loop = self.client._on_results, loop
        self._connection = _Connection(carrier)
        self._connection.connection_made(self.wire)

    async def says(self, *results: Any) -> None:
        (name,) = self.client._live
        self._connection.data_received(b"".join(encode(result, name) for result in results))
        for _ in range(3):
            await asyncio.sleep(0)


async def test_a_chunk_costs_one_write_and_no_timer() -> None:
    loop, far, side = asyncio.get_running_loop(), Far(), Side()
    service, engine, send = Service(far.client, HttpOptions()), far.wire, far.says
    request = make_mocked_request(
        "POST", "/", writer=StreamWriter(side, loop), protocol=side, transport=side.transport
    )  # type: ignore[arg-type]
    request[REQUEST_ID] = "r"
    asked = SpeechRequest(Submit("r", text="Hello.", closed=True), "pcm", False, True)

    async def speak() -> None:
        async with service.speaking(asked.submit) as utterance:
            await SpeechRoute(service)._stream(request, asked, utterance)

    speaking = asyncio.create_task(speak())
    await asyncio.sleep(0)
    await send(Accepted("r"), Pcm("r", 0, bytes(3840), 1))
    told, written = len(engine.writes), len(side.transport.writes)
    assert (told, written) == (2, 1)  # what was asked, and that it plays; head and first audio
    with patch.object(loop, "call_at", side_effect=AssertionError("a timer")):
        for number in range(1, CHUNKS):
            await send(Pcm("r", 1920 * number, bytes(3840), 1))
    assert (len(engine.writes), len(side.transport.writes)) == (told, CHUNKS)
    await send(Done("r", "stop", 1920 * CHUNKS, CHUNKS))
    await asyncio.wait_for(speaking, 10)
    assert len(engine.writes) == told
    assert b"".join(side.transport.writes).endswith(b"\r\n0\r\n\r\n")


class Frames:
    """A WebSocket and its request: each frame is one write to a client that keeps up."""

    def __init__(self) -> None:
        self.transport = Wire()
        self.writer = self

    async def send_str(self, text: str) -> None:
        self.transport.write(text.encode())

    async def send_bytes(self, data: bytes) -> None:
        self.transport.write(data)

    async def drain(self) -> None:
        """Nothing is ever buffered."""


async def test_a_chunk_over_a_websocket_costs_one_write_and_no_timer() -> None:
    loop, far, frames = asyncio.get_running_loop(), Far(), Frames()
    service = Service(far.client, HttpOptions())
    outlet = Outlet(frames, frames)  # type: ignore[arg-type]
    running = asyncio.create_task(outlet.run())
    with patch.object(Service, "ready", True):
        spoken = Spoken("a", 1, Submit("r"), service, service.keys.account(None), outlet)
    spoken.append("Hello.")
    spoken.end()
    for _ in range(3):
        await asyncio.sleep(0)
    await far.says(Accepted("r"), Pcm("r", 0, bytes(3840), 1))
    told, written = len(far.wire.writes), len(frames.transport.writes)
    assert (told, written) == (3, 2), "asked, where it stands, that it plays; accepted, first audio"
    with patch.object(loop, "call_at", side_effect=AssertionError("a timer")):
        for number in range(1, CHUNKS):
            await far.says(Pcm("r", 1920 * number, bytes(3840), 1))
    assert len(frames.transport.writes) == written + CHUNKS - 1
    assert len(far.wire.writes) == told
    await far.says(Done("r", "stop", 1920 * CHUNKS, CHUNKS))
    while not spoken.over:
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    done = json.loads(frames.transport.writes[-1])
    assert (done["reason"], done["num_samples"]) == ("stop", 1920 * CHUNKS)
    running.cancel()


def test_a_stream_leaves_nothing_to_be_searched_for() -> None:
    with left_behind() as found:
        asyncio.run(test_a_chunk_costs_one_write_and_no_timer())
    of_a_process = ("carrier.", "socket_carrier.", "wire.", "client.EngineClient", "pace.")
    assert not [
        name for name in found if not name.startswith(of_a_process, len("playhead.worker."))
    ]

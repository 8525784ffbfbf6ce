"""Outlet: order, what a cancel keeps from being sent, and clients that read nothing."""

import asyncio
from typing import Any

import pytest

from playhead.worker.http.outlet import MAX_QUEUED_EVENTS, Outlet


class Wire:
    """Stands for the connection: keeps what is written, and can be dropped."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.dropped = 0
        self.transport = self

    async def send_str(self, text: str) -> None:
        self.sent.append(text)

    async def send_bytes(self, data: bytes) -> None:
        self.sent.append(data)

    async def pong(self, data: bytes) -> None:
        self.sent.append(("pong", data))

    def abort(self) -> None:
        self.dropped += 1


@pytest.fixture
def wire() -> Wire:
    return Wire()


def outlet_of(wire: Any) -> Outlet:
    return Outlet(wire, wire)


async def written(outlet: Outlet) -> None:
    task = asyncio.create_task(outlet.run())
    await asyncio.sleep(0.01)
    task.cancel()


async def test_writes_in_order_and_leaves_out_what_is_not_said(wire: Wire) -> None:
    outlet = outlet_of(wire)
    told: list[str] = []
    outlet.event("first", utterance=None, number=1)
    audio = asyncio.create_task(outlet.audio(b"pcm", lambda: told.append("written")))
    await asyncio.sleep(0)
    outlet.pong(b"42")
    await written(outlet)
    await audio
    assert wire.sent == ['{"type":"first","number":1}', b"pcm", ("pong", b"42")]
    assert told == ["written"]


async def test_audio_that_was_cancelled_in_the_queue_is_never_sent(wire: Wire) -> None:
    outlet = outlet_of(wire)
    told: list[str] = []
    audio = asyncio.create_task(outlet.audio(b"pcm", lambda: told.append("written")))
    await asyncio.sleep(0)
    audio.cancel()
    await asyncio.wait([audio])
    outlet.event("done")
    await written(outlet)
    assert wire.sent == ['{"type":"done"}'] and told == []


async def test_a_client_that_reads_no_answers_is_dropped(wire: Wire) -> None:
    outlet = outlet_of(wire)
    for _ in range(MAX_QUEUED_EVENTS):
        outlet.event("pong")
    assert wire.dropped == 0
    outlet.event("pong")
    assert wire.dropped == 1

"""Outlet: order, what a cancel keeps from being sent, and clients that read nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from playhead.worker.http.outlet import MAX_QUEUED_EVENTS, Outlet


class Wire:
    """Stands for the connection: keeps what is written, may take nothing, and can be dropped."""

    def __init__(self) -> None:
        self.sent: list[object] = []
        self.dropped = 0
        self.transport = self.writer = self
        self.taken = 0
        """Of what was sent."""
        self.takes = True
        self._resumed = asyncio.Event()

    async def send_str(self, text: str) -> None:
        self._send(text)

    async def send_bytes(self, data: bytes) -> None:
        self._send(data)

    async def pong(self, data: bytes) -> None:
        self._send(("pong", data))

    def get_write_buffer_size(self) -> int:
        return len(self.sent) - self.taken

    async def drain(self) -> None:
        if self.get_write_buffer_size():
            await self._resumed.wait()

    def resume(self) -> None:
        self.takes, self.taken = True, len(self.sent)
        self._resumed.set()

    def abort(self) -> None:
        self.dropped += 1

    def _send(self, item: object) -> None:
        self.sent.append(item)
        self.taken += self.takes


class Waits:
    """Counts the waits for a client."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        self.begun += 1
        yield
        self.ended += 1


@pytest.fixture
def wire() -> Wire:
    return Wire()


def outlet_of(wire: Any) -> Outlet:
    return Outlet(wire, wire)


async def written(outlet: Outlet) -> None:
    task = asyncio.create_task(outlet.run())
    await asyncio.sleep(0.01)
    task.cancel()


def nobody() -> None:
    """Wants to know nothing."""


async def test_writes_in_order_and_leaves_out_what_is_not_said(wire: Wire) -> None:
    outlet = outlet_of(wire)
    told: list[str] = []
    outlet.event("first", utterance=None, number=1)
    await outlet.audio(b"pcm", lambda: told.append("written"), Waits().one())
    outlet.pong(b"42")
    await written(outlet)
    assert wire.sent == ['{"type":"first","number":1}', b"pcm", ("pong", b"42")]
    assert told == ["written"]


async def test_a_client_that_keeps_up_costs_no_wait_no_timer_and_no_future(wire: Wire) -> None:
    outlet, waits, loop = outlet_of(wire), Waits(), asyncio.get_running_loop()
    nothing = AssertionError("it waits")
    with (
        patch.object(loop, "call_at", side_effect=nothing),
        patch.object(loop, "create_future", side_effect=nothing),
    ):
        for number in range(20):
            outlet.event("words", number=number)
            await outlet.audio(b"%d" % number, nobody, waits.one())
    assert (waits.begun, wire.sent[1::2]) == (0, [b"%d" % number for number in range(20)])
    assert "words" in str(wire.sent[0::2]) and len(wire.sent) == 40


async def test_audio_waits_for_a_client_that_is_behind_and_events_for_their_turn(
    wire: Wire,
) -> None:
    outlet, waits = outlet_of(wire), Waits()
    running = asyncio.create_task(outlet.run())
    wire.takes = False
    sending = [asyncio.create_task(outlet.audio(b, nobody, waits.one())) for b in (b"a", b"b")]
    await asyncio.sleep(0.01)
    outlet.event("done")
    await asyncio.sleep(0.01)
    assert (wire.sent, waits.begun) == ([b"a"], 2), "one frame is offered at a time"
    assert not any(each.done() for each in sending)
    wire.resume()  # what is said at this very moment comes after those who wait
    sending.append(asyncio.create_task(outlet.audio(b"c", nobody, waits.one())))
    await asyncio.wait_for(asyncio.gather(*sending), 10)
    assert (waits.begun, waits.ended) == (3, 3)
    assert wire.sent == [b"a", b"b", '{"type":"done"}', b"c"]
    running.cancel()


async def test_audio_that_was_cancelled_before_its_turn_is_never_sent(wire: Wire) -> None:
    outlet, waits = outlet_of(wire), Waits()
    told: list[str] = []
    running = asyncio.create_task(outlet.run())
    wire.takes = False
    first = asyncio.create_task(outlet.audio(b"a", nobody, waits.one()))
    await asyncio.sleep(0.01)
    late = asyncio.create_task(outlet.audio(b"pcm", lambda: told.append("written"), waits.one()))
    await asyncio.sleep(0.01)
    late.cancel()
    await asyncio.wait([late])
    outlet.event("done")
    wire.resume()
    await asyncio.wait_for(first, 10)
    await outlet.audio(b"c", nobody, waits.one())
    assert wire.sent == [b"a", '{"type":"done"}', b"c"] and told == []
    running.cancel()


async def test_a_cancel_while_the_client_is_behind_ends_no_other_wait(wire: Wire) -> None:
    outlet, waits = outlet_of(wire), Waits()
    running = asyncio.create_task(outlet.run())
    wire.takes = False
    first, other = (asyncio.create_task(outlet.audio(b, nobody, waits.one())) for b in (b"a", b"b"))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert first.cancelled() and not other.done()
    wire.resume()
    await asyncio.wait_for(other, 10)
    assert wire.sent == [b"a", b"b"]
    running.cancel()


async def test_a_client_that_reads_no_answers_is_dropped(wire: Wire) -> None:
    outlet = outlet_of(wire)
    for _ in range(MAX_QUEUED_EVENTS):
        outlet.event("pong")
    assert wire.dropped == 0
    outlet.event("pong")
    assert wire.dropped == 1

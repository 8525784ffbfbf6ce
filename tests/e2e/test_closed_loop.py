"""The loop through real rooms: who does not listen costs nothing, and who reports is followed."""

import asyncio
import json
import statistics
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from livekit import rtc

from playhead.worker import sdk_routing
from playhead.worker.client import EngineClient
from playhead.worker.demo.llm import PARAGRAPH
from playhead.worker.demo.server import Access
from playhead.worker.permissions import RoomPolicy
from playhead.worker.session import RoomSession
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from tests.e2e.rig import FarRoom, HeardSpeech, KnownSpeech, Spoken, WorkerProcess
from tests.worker.people import Person

pytestmark = [pytest.mark.livekit, pytest.mark.slow]


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    sdk_routing.touch()
    sdk_routing.install()
    client = EngineClient(ThreadCarrier(engine_maker(None, "cpu")))
    client.start()
    yield client
    client.close()


@asynccontextmanager
async def speaking(
    access: Access, room_name: str, client: EngineClient, policy: RoomPolicy | None = None
) -> AsyncIterator[rtc.Room]:
    room = rtc.Room()
    session = RoomSession(room, client, policy or RoomPolicy(), clock_events=True)
    token = access.token("worker", room_name, kind="agent")
    await room.connect(access.url, token, rtc.RoomOptions(auto_subscribe=False))
    serving = asyncio.create_task(session.run())
    try:
        yield room
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        await room.disconnect()
        assert client.num_live == 0, "every slot is given back"


async def until(condition: Callable[[], Any], limit_s: float = 30.0) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.05)


async def still_frames(client: EngineClient) -> float:
    """Return the frames made once no more are made."""
    seen: list[float] = []
    async with asyncio.timeout(30):
        while len(seen) < 5 or len(set(seen[-5:])) > 1:
            seen.append(client.status().metrics["frame_rows"])
            await asyncio.sleep(0.2)
    return seen[-1]


class Deaf(Person):
    """Joins a room and does not subscribe to anything before it is told to."""

    async def __aenter__(self) -> "Deaf":
        token = self.access.token(self.identity, self.room_name, kind=self.kind)
        await self.room.connect(self.access.url, token, rtc.RoomOptions(auto_subscribe=False))
        return self

    def publications(self) -> list[rtc.RemoteTrackPublication]:
        found = self.room.remote_participants.values()
        return [each for person in found for each in person.track_publications.values()]


async def test_a_listener_that_does_not_subscribe_costs_no_step_and_loses_nothing(
    livekit_server: Access, room_name: str, client: EngineClient
) -> None:
    async with (
        speaking(livekit_server, room_name, client),
        Deaf(livekit_server, room_name, "ann") as ann,
    ):
        await until(ann.publications)
        before = client.status().metrics["frame_rows"]
        await ann.say(PARAGRAPH, "r1")
        await until(lambda: client.status().metrics["frame_rows"] > before)
        made = await still_frames(client) - before
        assert made < 30, "more than what may be made ahead"
        assert not ann.of("r1", "started")
        ann.publications()[0].set_subscribed(True)
        await ann.told("r1", "started")
        end = await ann.end_of("r1", limit_s=60)
    assert end["type"] == "finished" and end["heard_text"] == PARAGRAPH
    assert end["gaps"] <= client.status().metrics["late_chunks"]
    assert ann.loud_s > 0.6 * end["heard_s"], "it was heard from its first sample"


class Reporting(Person):
    """Says four times a second that its jitter buffer holds so much."""

    jitter_buffer_s = 0.2

    def begin(self) -> None:
        body = {"jitter_buffer_s": self.jitter_buffer_s, "target_s": 0.06, "rtt_s": 0.0}

        async def report() -> None:
            while True:
                await self.room.local_participant.publish_data(
                    json.dumps(body), reliable=False, topic="playhead.receiver"
                )
                await asyncio.sleep(0.25)

        self._spawn(report())


async def test_of_three_listeners_heard_follows_the_linked_one_then_who_reports_then_a_prior(
    livekit_server: Access, room_name: str, client: EngineClient
) -> None:
    """Eve is linked and leaves; ann reports and leaves; bob never reports and leaves last."""
    policy = RoomPolicy("eve", frozenset({"bob"}))
    bob = Person(livekit_server, room_name, "bob")
    ann = Reporting(livekit_server, room_name, "ann")
    eve = Person(livekit_server, room_name, "eve")

    async def followed(source: str, at_least_s: float, below_s: float) -> None:
        """Wait for a reading, newer than all so far, whose ear is so far behind the sender."""
        seen = len(bob.of("r1", "clock"))

        def found() -> bool:
            assert not bob.of("r1", "finished", "interrupted", "error")
            new = bob.of("r1", "clock")[seen:]
            behind_s = [r["exited_s"] - r["heard_s"] for r in new if r["source"] == source]
            return any(at_least_s <= each < below_s for each in behind_s)

        await until(found)

    async with speaking(livekit_server, room_name, client, policy) as room, bob, ann, eve:
        await until(lambda: {"bob", "ann", "eve"} <= set(room.remote_participants))
        ann.begin()
        before = client.status().metrics
        await bob.say(f"{PARAGRAPH} {PARAGRAPH}", "r1")
        await bob.told("r1", "started")
        await followed("assumed", 0.05, 0.15)
        await eve.leave()
        await followed("reported", 0.2, 0.4)
        await ann.leave()
        await followed("assumed", 0.05, 0.15)
        assert client.num_live == 1, "who left changed nothing for bob"
        await bob.leave()
        await until(lambda: client.num_live == 0)
        await still_frames(client)
        after = client.status().metrics
    assert after["cancelled"] == before["cancelled"] + 1, "nobody is left, so it is cut"
    assert after["done"] == before["done"]


def delays_s(heard: HeardSpeech, request_id: str) -> list[float]:
    """Return the way from the sender to the ear as the clock takes it, in the speech's middle."""
    readings = [r for r in heard.of("clock", request_id) if r["source"] == "reported"]
    middle = [r for r in readings if r["heard_s"] > 2.0 and r["slack_s"] > 0.05]
    assert len(middle) > 50, len(middle)
    return [reading["exited_s"] - reading["heard_s"] for reading in middle]


@pytest.mark.timeout(300)
def test_the_lead_follows_the_reports_of_a_worse_link(
    paragraph: KnownSpeech, worker: WorkerProcess, far_room: FarRoom, tmp_path: Path, room_name: str
) -> None:
    """What is on its way grows with the link, 80 +- 30 ms and 3 % loss; nobody hears a gap."""
    texts = [Spoken("w", "Hello there, and welcome."), Spoken("t", PARAGRAPH)]
    impairment = {"delay_ms": 80, "jitter_ms": 30, "loss": 0.03}
    worse = far_room.hear(room_name, texts, tmp_path, settle_s=3.0, **impairment)
    clean_s = statistics.median(delays_s(paragraph.heard, paragraph.request_id))
    worse_s = statistics.median(delays_s(worse, "t"))
    assert worse_s > clean_s + 0.06, (clean_s, worse_s)
    assert paragraph.heard.end_of(paragraph.request_id)["gaps"] <= worker.num_late()
    assert worse.end_of("t")["gaps"] <= far_room.worker.num_late()

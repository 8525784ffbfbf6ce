"""The loop through real rooms: who does not listen costs nothing, and who reports is followed."""

import asyncio
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
from playhead.worker.demo.server import Access, LocalServer
from playhead.worker.permissions import RoomPolicy
from playhead.worker.session import RoomSession
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from tests.e2e.rig import HeardSpeech, Spoken, WorkerProcess, run_listener
from tests.e2e.test_clock_truth import Link, link
from tests.worker.people import Person

__all__ = ["link"]  # the fixture of an impaired link

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
async def speaking(access: Access, room_name: str, client: EngineClient) -> AsyncIterator[None]:
    room = rtc.Room()
    session = RoomSession(room, client, RoomPolicy(), clock_events=True)
    token = access.token("worker", room_name, kind="agent")
    await room.connect(access.url, token, rtc.RoomOptions(auto_subscribe=False))
    serving = asyncio.create_task(session.run())
    try:
        yield
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
    assert end["gaps"] == 0
    assert ann.loud_s > 0.6 * end["heard_s"], "it was heard from its first sample"


def delays_s(heard: HeardSpeech) -> list[float]:
    """Return the way from the sender to the ear as the clock takes it, in the speech's middle."""
    readings = [r for r in heard.of("clock", "t") if r["source"] == "reported"]
    middle = [r for r in readings if r["heard_s"] > 2.0 and r["slack_s"] > 0.05]
    assert len(middle) > 50, len(middle)
    return [reading["exited_s"] - reading["heard_s"] for reading in middle]


@pytest.mark.timeout(300)
def test_the_lead_follows_the_reports_of_a_worse_link(
    link: Link, tmp_path: Path, room_name: str
) -> None:
    """What is on its way grows with the link, 80 +- 30 ms and 3 % loss; nobody hears a gap."""
    texts = [Spoken("w", "Hello there, and welcome."), Spoken("t", PARAGRAPH)]
    link.impair(delay_ms=0)
    heard: list[HeardSpeech] = []
    with LocalServer(host=link.address, interface=link.interface) as server:
        worker = WorkerProcess(server.access, tmp_path / "worker.log")
        worker.start()
        try:
            for impairment in ({}, {"delay_ms": 80, "jitter_ms": 30, "loss": 0.03}):
                link.impair(**impairment)
                heard.append(
                    run_listener(
                        server.access,
                        f"{room_name}-{len(heard)}",
                        texts,
                        tmp_path / str(len(heard)),
                        prefix=("ip", "netns", "exec", link.namespace),
                        settle_s=3.0,
                    )
                )
        finally:
            worker.stop()
    clean_s, worse_s = (statistics.median(delays_s(each)) for each in heard)
    assert worse_s > clean_s + 0.06, (clean_s, worse_s)
    assert [each.end_of("t")["gaps"] for each in heard] == [0, 0]

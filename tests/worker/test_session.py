"""RoomSession in real rooms, over the real engine with the embedded voice. Counts, no latencies."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from livekit import rtc

from playhead.worker import sdk_routing
from playhead.worker.client import EngineClient
from playhead.worker.demo.server import Access
from playhead.worker.permissions import RoomPolicy
from playhead.worker.session import RoomSession
from playhead.worker.text_intake import TextLimits
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from tests.worker.people import Person, delete_room

pytestmark = pytest.mark.livekit

TEXT = "Good morning, this is a short test of the speaking worker."


@pytest.fixture(scope="module")
def client() -> Iterator[EngineClient]:
    sdk_routing.touch()
    assert sdk_routing.install()
    client = EngineClient(ThreadCarrier(engine_maker(None, "cpu")))
    client.start()
    yield client
    client.close()


class Rooms:
    def __init__(self, access: Access, name: str, client: EngineClient) -> None:
        self.access, self.name, self.client = access, name, client
        self.policy = RoomPolicy()
        self.limits = TextLimits()

    def person(self, identity: str, kind: str = "standard") -> Person:
        return Person(self.access, self.name, identity, kind)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[RoomSession]:
        room = rtc.Room()
        session = RoomSession(room, self.client, self.policy, self.limits)
        token = self.access.token("worker", self.name, kind="agent")
        await room.connect(self.access.url, token, rtc.RoomOptions(auto_subscribe=False))
        serving = asyncio.create_task(session.run())
        try:
            yield session
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            await room.disconnect()
            assert self.client.num_live == 0, "every slot is given back"


@pytest.fixture
def rooms(livekit_server: Access, room_name: str, client: EngineClient) -> Rooms:
    return Rooms(livekit_server, room_name, client)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


async def test_streamed_text_is_heard_told_and_captioned(rooms: Rooms) -> None:
    async with rooms.person("ann") as ann, rooms.session():
        writer = await ann.open("r1", seed="5")
        for piece in re.findall(r"\S+\s*", TEXT):
            await writer.write(piece)
            await asyncio.sleep(0.02)
        await writer.aclose()
        end = await ann.end_of("r1")
        await ann.until(lambda: ann.captions)
    timed = [word for event in ann.of("r1", "words") for word in event["words"]]
    assert "".join(word["text"] for word in timed).strip() == TEXT
    assert len(words("".join(word["text"] for word in timed))) == len(words(TEXT))
    starts = [word["start_s"] for word in timed]
    assert starts == sorted(starts)
    assert end["type"] == "finished" and end["heard_text"] == TEXT
    caption, attributes = ann.captions[0]
    assert caption.strip() == TEXT
    assert attributes["lk.segment_id"] == "r1" and attributes["lk.transcription_final"] == "true"
    assert attributes["lk.transcribed_track_id"].startswith("TR_")
    assert 0.5 * end["heard_s"] < ann.loud_s <= end["heard_s"] + 0.1
    assert [event["type"] for event in ann.of("r1")].count("started") == 1


async def test_interrupt_returns_what_was_heard_and_silences(rooms: Rooms) -> None:
    async with rooms.person("ann") as ann, rooms.session():
        await ann.say(TEXT * 3, "r1")
        await ann.say("Never said.", "r2")
        await ann.told("r1", "started")
        await asyncio.sleep(1.5)
        heard = await ann.interrupt("worker")
        end = await ann.end_of("r1")
        queued = await ann.end_of("r2")
        await asyncio.sleep(0.5)
        quiet_from = len(ann.sound)
        loud_s = ann.loud_s
        await asyncio.sleep(0.5)
        assert len(ann.sound) > quiet_from and ann.loud_s == loud_s
        again = await ann.interrupt("worker")
    assert heard["request_id"] == "r1" and 0.5 < heard["heard_s"] < 2.0
    assert heard["heard_text"] and TEXT.startswith(heard["heard_text"])
    assert end["type"] == queued["type"] == "interrupted"
    assert end["heard_text"] == heard["heard_text"] and queued["heard_text"] == ""
    assert again == {"request_id": None, "heard_text": "", "heard_s": 0.0}


async def test_requests_follow_in_order_or_replace_as_their_mode_says(rooms: Rooms) -> None:
    async with rooms.person("ann") as ann, rooms.session():
        await ann.say("One.", "r1")
        await ann.say("Two.", "r2", mode="append")
        await ann.end_of("r2")
        await ann.say(TEXT * 2, "r3")
        await ann.told("r3", "started")
        await ann.say("Four.", "r4", mode="interrupt")
        await ann.end_of("r4")
    ends = [e for e in ann.events if e["type"] in ("finished", "interrupted")]
    assert [(e["request_id"], e["type"]) for e in ends] == [
        ("r1", "finished"),
        ("r2", "finished"),
        ("r3", "interrupted"),
        ("r4", "finished"),
    ]
    assert ends[2]["reason"] == "replaced"


async def test_strangers_change_nothing_and_are_told_so(rooms: Rooms) -> None:
    async with rooms.person("ann") as ann, rooms.person("eve") as eve, rooms.session():
        await ann.say(TEXT, "r1")
        await ann.told("r1", "started")
        await eve.say("I speak now.", "e1", mode="interrupt")
        with pytest.raises(rtc.RpcError) as refused:
            await eve.interrupt("worker")
        for _ in range(300):  # a second stream of nonsense: lossy data on both topics
            for topic in ("playhead.receiver", "playhead.text"):
                await eve.room.local_participant.publish_data(b"{}", reliable=False, topic=topic)
        for _ in range(30):
            await eve.say("Me!", "e2")
        end = await ann.end_of("r1")
        await eve.until(lambda: any(e["type"] == "unauthorized" for e in eve.events))
    assert refused.value.code == 403
    assert end["type"] == "finished" and end["heard_text"] == TEXT
    assert not ann.of("e1") and not ann.of("e2"), "only the stranger is told"
    told = [e for e in eve.events if e["type"] == "unauthorized"]
    assert 1 <= len(told) <= 8, "at most one a second"


async def test_agents_and_allowed_identities_may_speak(rooms: Rooms) -> None:
    rooms.policy = RoomPolicy("ann", frozenset({"bob"}))
    async with (
        rooms.person("ann") as ann,
        rooms.person("bot", "agent") as bot,
        rooms.person("bob") as bob,
        rooms.person("eve") as eve,
        rooms.session(),
    ):
        await bot.say("From the agent.", "r1")
        await bob.say("From the allowed one.", "r2")
        await eve.say("From nobody.", "r3")
        await eve.until(lambda: eve.of("r3"))
        ends = [await ann.end_of(name) for name in ("r1", "r2")]
    assert [end["type"] for end in ends] == ["finished", "finished"]
    assert eve.of("r3")[0]["type"] == "unauthorized"


BAD = [
    ("", {}, "empty_text"),
    (" \n\t ", {}, "empty_text"),
    ("hello", {"voice": "nobody"}, "unknown_voice"),
    ("hello", {"language": "klingon"}, "unknown_language"),
    ("hello", {"vioce": "ann"}, "invalid_request"),
    ("hello", {"seed": "many"}, "invalid_request"),
    ("hello", {"mode": "shout"}, "invalid_request"),
    ("hello", {"temperature": "nan"}, "invalid_request"),
    ("x" * 30_001, {}, "text_too_long"),
]
SILENT = ["...", "?!", "😀😀", "— * —"]


async def test_room_goes_on_whatever_bad_input_comes(rooms: Rooms) -> None:
    rooms.limits = TextLimits(max_chars=30_000)
    async with rooms.person("ann") as ann, rooms.session():
        for number, (text, attributes, code) in enumerate(BAD):
            await ann.say(text, f"bad{number}", **attributes)
            end = await ann.end_of(f"bad{number}")
            assert (end["type"], end["code"]) == ("error", code), (text[:20], attributes)
        for number, text in enumerate(SILENT):
            await ann.say(text, f"silent{number}")
            end = await ann.end_of(f"silent{number}")
            assert (end["type"], end["heard_s"]) == ("finished", 0.0), text
        await ann.say("word " * 4000, "long")  # 20,000 characters, no full stop
        await ann.told("long", "started")
        await ann.interrupt("worker")
        await ann.say("Still here.", "good")
        good = await ann.end_of("good")
    assert good["heard_text"] == "Still here."
    for name in {event["request_id"] for event in ann.events}:
        assert len(ann.of(name, "finished", "interrupted", "error")) == 1, name


async def test_a_used_request_id_is_refused_while_it_is_live(rooms: Rooms) -> None:
    async with rooms.person("ann") as ann, rooms.session():
        writer = await ann.open("same")
        await writer.write("Hello there, how are you today? ")
        await ann.told("same", "started")
        await ann.say("Me too.", "same")
        await ann.until(lambda: any(e["type"] == "error" for e in ann.events))
        await writer.aclose()
        await ann.end_of("same")
    error = next(e for e in ann.events if e["type"] == "error")
    assert error["request_id"] != "same" and ann.of("same", "finished")
    assert error["code"] == "invalid_request" and "in use" in error["message"]


async def test_a_stream_that_never_closes_is_spoken_after_the_idle_limit(rooms: Rooms) -> None:
    rooms.limits = TextLimits(idle_s=0.6)
    async with rooms.person("ann") as ann, rooms.session():
        writer = await ann.open("r1")
        await writer.write("Something half said")
        end = await ann.end_of("r1")
        await ann.say("Next.", "r2")
        await ann.end_of("r2")
    assert ann.of("r1", "notice")[0]["code"] == "text_idle"
    assert end["type"] == "finished" and end["heard_text"] == "Something half said"


async def test_what_came_is_spoken_when_the_writer_leaves_midway(rooms: Rooms) -> None:
    async with rooms.person("ann") as ann, rooms.person("bot", "agent") as bot, rooms.session():
        writer = await bot.open("r1")
        await writer.write("Before I go away ")
        await ann.told("r1", "started")
        await bot.leave()
        end = await ann.end_of("r1", limit_s=40)
    assert end["type"] == "finished" and end["heard_text"] == "Before I go away"


async def test_slot_is_freed_when_the_only_listener_leaves_midway(rooms: Rooms) -> None:
    ann = rooms.person("ann")
    async with rooms.person("bot", "agent") as bot, ann, rooms.session():
        await bot.say(TEXT * 6, "r1")
        await bot.told("r1", "started")
        await ann.leave()
        end = await bot.end_of("r1")
        assert end["type"] == "interrupted" and end["reason"] == "no_listener"
        assert rooms.client.num_live == 0
        async with rooms.person("cid") as cid:
            await bot.say("Welcome back.", "r2")
            again = await bot.end_of("r2")
            assert cid.loud_s > 0.2
    assert again["type"] == "finished" and again["heard_text"] == "Welcome back."


async def test_nothing_is_lost_when_the_listener_comes_after_the_text(rooms: Rooms) -> None:
    async with rooms.person("bot", "agent") as bot, rooms.session():
        await bot.say(TEXT, "r1")
        await bot.told("r1", "words")
        await asyncio.sleep(0.5)
        assert not bot.of("r1", "started")
        async with rooms.person("ann") as ann:
            end = await bot.end_of("r1")
            assert end["heard_text"] == TEXT
            assert ann.loud_s > 0.5 * end["heard_s"]


async def test_a_phone_hears_with_the_prior_of_phones(rooms: Rooms) -> None:
    async with rooms.person("caller", "sip") as caller, rooms.session() as session:
        await caller.say("Hello caller.", "r1")
        end = await caller.end_of("r1")
        estimate: Any = session._receivers.estimate(0.0)
    assert end["type"] == "finished" and estimate.kind == "phone"


async def test_reports_count_when_a_listener_sends_them(rooms: Rooms) -> None:
    report = {"jitter_buffer_s": 0.05, "target_s": 0.04, "rtt_s": 0.01}
    async with rooms.person("ann") as ann, rooms.session() as session:
        await ann.until(lambda: ann.worker)
        receivers = session._receivers
        loop = asyncio.get_running_loop()

        def source() -> str:
            return receivers.estimate(loop.time()).source(loop.time())

        await ann.until(lambda: len(receivers) == 1)
        assert source() == "assumed"
        await ann.room.local_participant.publish_data(
            json.dumps(report), reliable=False, topic="playhead.receiver"
        )
        await ann.until(lambda: source() == "reported")
        await ann.until(lambda: source() == "assumed")


async def test_speech_goes_on_when_the_worker_reconnects(rooms: Rooms) -> None:
    async with rooms.person("ann") as ann, rooms.session() as session:
        await ann.say(TEXT * 2, "r1")
        await ann.told("r1", "started")
        states: list[str] = []
        for state in ("reconnecting", "reconnected"):
            session._room.on(state, lambda state=state: states.append(state))
        await session._room.simulate_scenario(rtc.SimulateScenarioKind.SIMULATE_SIGNAL_RECONNECT)
        end = await ann.end_of("r1", limit_s=40)
        await ann.say("And on.", "r2")
        await ann.end_of("r2")
    assert states[:2] == ["reconnecting", "reconnected"]
    assert end["type"] == "finished" and end["heard_text"] == TEXT * 2


async def test_session_ends_when_the_room_is_closed(rooms: Rooms) -> None:
    room = rtc.Room()
    session = RoomSession(room, rooms.client, rooms.policy, rooms.limits)
    token = rooms.access.token("worker", rooms.name, kind="agent")
    async with rooms.person("ann") as ann:
        await room.connect(rooms.access.url, token)
        serving = asyncio.create_task(session.run())
        await ann.say(TEXT * 3, "r1")
        await ann.told("r1", "started")
        await delete_room(rooms.access, rooms.name)
        await asyncio.wait_for(serving, 10)
    await room.disconnect()
    assert rooms.client.num_live == 0

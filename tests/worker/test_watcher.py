"""Watcher: a room whose worker was killed gets exactly one new one, whoever watches."""

import argparse
import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from livekit import api

from playhead.engine.errors import ConfigError
from playhead.worker import watcher as module
from playhead.worker.demo.server import Access
from playhead.worker.watcher import LEASE_NAME, SILENCES, Dispatch, RoomView, ServerRooms, Watcher
from tests.worker.people import Person
from tests.worker.test_worker import SAID, Worker


class Hall:
    """A server with one room, as two watchers see it; every call lets the others run."""

    def __init__(self) -> None:
        self.callers = 1
        self.speakers = {"PA_1": "agent-1"}
        self.silent: set[str] = set()
        self.silences = 0
        """How many more questions get no answer."""
        self.dispatches = [Dispatch("AD_1", "", "meta", 1)]
        self.given: list[str] = []
        self.told: list[Any] = []
        self._numbers = itertools.count(2)

    async def names(self) -> list[str]:
        return ["hall"]

    async def view(self, room: str) -> RoomView:
        await asyncio.sleep(0)
        return RoomView(self.callers, dict(self.speakers), tuple(self.dispatches))

    async def answers(self, room: str, identity: str) -> bool:
        await asyncio.sleep(0)
        if self.silences:
            self.silences -= 1
            return False
        return identity not in self.silent

    async def dispatch(self, room: str, agent_name: str, metadata: str) -> Dispatch:
        await asyncio.sleep(0)
        number = next(self._numbers)
        made = Dispatch(f"AD_{number}", agent_name, metadata, number)
        self.dispatches.append(made)
        if agent_name != LEASE_NAME:
            self.given.append(metadata)
            self.speakers[f"PA_{number}"] = f"agent-{number}"
        await asyncio.sleep(0)
        return made

    async def undo(self, room: str, dispatch: Dispatch) -> None:
        await asyncio.sleep(0)
        self.dispatches = [each for each in self.dispatches if each != dispatch]

    async def remove(self, room: str, identity: str) -> None:
        await asyncio.sleep(0)
        self.speakers = {s: i for s, i in self.speakers.items() if i != identity}

    async def tell(self, room: str, event: Any) -> None:
        self.told.append(event)


def watchers(hall: Any, number: int) -> list[Watcher]:
    return [Watcher(hall) for _ in range(number)]


async def look(watching: list[Watcher], times: int) -> None:
    for _ in range(times):
        await asyncio.gather(*(each.look() for each in watching))


@pytest.mark.parametrize("number", [1, 2, 5])
async def test_a_silent_worker_is_replaced_once_however_many_watch(number: int) -> None:
    hall = Hall()
    watching = watchers(hall, number)
    await look(watching, 5)
    assert hall.given == [], "it answers"
    hall.silent.add("agent-1")
    await look(watching, 3)
    assert hall.given == ["meta"] and len(hall.speakers) == 1 and "PA_1" not in hall.speakers
    assert sum(each.num_given for each in watching) == 1
    assert [each.agent_name for each in hall.dispatches] == [""], "no lock is left behind"
    assert [event["code"] for event in hall.told] == ["worker_lost"]
    await look(watching, 5)
    assert hall.given == ["meta"]


async def test_a_watcher_that_comes_late_sees_that_it_was_done() -> None:
    hall = Hall()
    early, late = watchers(hall, 2)
    make = hall.dispatch

    async def delayed(room: str, agent_name: str, metadata: str) -> Dispatch:
        hall.dispatch = make  # type: ignore[method-assign]
        await early.look()
        return await make(room, agent_name, metadata)

    hall.silent.add("agent-1")
    hall.dispatch = delayed  # type: ignore[method-assign]
    await late.look()
    assert (early.num_given, late.num_given) == (1, 0) and hall.given == ["meta"]


async def test_one_silence_is_forgiven() -> None:
    hall = Hall()
    (watcher,) = watchers(hall, 1)
    for _ in range(4):
        hall.silences = SILENCES - 1
        await watcher.look()
        assert hall.silences == 0
    assert hall.given == []


@pytest.mark.parametrize("what", ["no callers", "no dispatch of ours"])
async def test_rooms_that_need_no_worker_are_left_alone(what: str) -> None:
    hall = Hall()
    hall.silent.add("agent-1")
    if what == "no callers":
        hall.callers = 0
    else:
        hall.dispatches = [Dispatch("AD_1", "another", "", 1)]
    await look(watchers(hall, 2), 6)
    assert hall.given == []


async def test_a_room_nobody_came_to_is_tried_again_but_not_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    hall = Hall()
    hall.speakers.clear()
    (watcher,) = watchers(hall, 1)
    given_at_s = []
    for _ in range(30):
        before = len(hall.given)
        await watcher.look()
        if len(hall.given) > before:
            given_at_s.append(now_s[0])
            hall.speakers.clear()  # and nobody stays
        now_s[0] += 1.0
    assert given_at_s[0] == 1000 + module.ABSENT_S
    assert all(b - a >= module.RETRY_S for a, b in itertools.pairwise(given_at_s))
    assert len(given_at_s) == 3


async def test_a_lock_of_a_dead_watcher_holds_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s[0])
    hall = Hall()
    hall.silent.add("agent-1")
    hall.dispatches.append(Dispatch("AD_0", LEASE_NAME, "a dead watcher", 0))
    (watcher,) = watchers(hall, 1)
    for _ in range(9):
        await watcher.look()
        now_s[0] += 1.0
    assert hall.given == []
    for _ in range(9):
        await watcher.look()
        now_s[0] += 1.0
    assert hall.given == ["meta"]


async def test_a_trouble_is_told_when_it_begins_and_when_it_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    refused = api.TwirpError("unknown", "", status=401)
    away = aiohttp.ClientConnectionError()
    troubles = [away, away, away, refused, refused, None, None, away, None]
    stop, hall = asyncio.Event(), Hall()

    async def names() -> list[str]:
        trouble = troubles.pop(0)
        if not troubles:
            stop.set()
        if trouble is not None:
            raise trouble
        return []

    monkeypatch.setattr(hall, "names", names)
    await watchers(hall, 1)[0].run(stop)
    told = [record.getMessage().partition(";")[0] for record in caplog.records]
    gone = "the server does not answer: ClientConnectionError"
    why = "401 unknown, see LIVEKIT_API_KEY and LIVEKIT_API_SECRET"
    back = "the server answers again"
    assert told == [gone, f"the server refuses us: {why}", back, gone, back]


@pytest.mark.parametrize("url", ["nonsense", "livekit:7880", "ftp://livekit", "ws://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    access = argparse.Namespace(url=url, access=("key", "secret"), agent_name="")
    with pytest.raises(ConfigError, match="allowed are ws://HOST:PORT"):
        module.run(access)


# -- with a real server and real workers


@asynccontextmanager
async def watched(access: Access, number: int) -> AsyncIterator[list[Watcher]]:
    stop = asyncio.Event()
    async with aiohttp.ClientSession() as session:
        made = [
            Watcher(ServerRooms(access.url, access.key, access.secret, session))
            for _ in range(number)
        ]
        running = [asyncio.create_task(each.run(stop)) for each in made]
        yield made
        stop.set()
        await asyncio.gather(*running)


async def our_participants(access: Access, room: str) -> list[str]:
    async with api.LiveKitAPI(access.url.replace("ws", "http", 1), access.key, access.secret) as lk:
        listed = await lk.room.list_participants(api.ListParticipantsRequest(room=room))
    return [each.identity for each in listed.participants if each.name == module.SPEAKER_NAME]


@pytest.mark.slow
@pytest.mark.livekit
@pytest.mark.timeout(240)
async def test_a_killed_workers_room_gets_exactly_one_new_worker(
    livekit_server: Access, room_name: str, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    other = f"{room_name}-other"
    workers = [Worker(livekit_server, folders[0], "--no-supervise")]
    try:
        await workers[0].registered()
        async with (
            watched(livekit_server, 2) as watching,
            Person(livekit_server, room_name, "ann") as ann,
        ):
            await ann.until(lambda: ann.worker, 60)
            first = ann.worker
            workers.append(Worker(livekit_server, folders[1], "--no-supervise"))
            await workers[1].registered()
            await ann.say(f"{SAID} " * 6, "r1")
            await ann.told("r1", "started")
            workers[0].process.kill()
            await ann.until(lambda: ann.worker != first, 60)  # `make cluster` measures how long
            async with Person(livekit_server, other, "bob") as bob:
                await bob.until(lambda: bob.worker, 30)
                await asyncio.sleep(4)  # both watchers look a few times more
                assert len(await our_participants(livekit_server, room_name)) == 1
                assert len(await our_participants(livekit_server, other)) == 1
                assert sum(each.num_given for each in watching) == 1
            await ann.say(SAID, "r2")
            assert (await ann.end_of("r2", limit_s=40))["heard_text"] == SAID
            lost = [event for event in ann.events if event.get("code") == "worker_lost"]
            assert len(lost) == 1 and len(ann.of("r1", "started")) == 1, "never replayed"
    finally:
        for each in workers:
            each.stop()

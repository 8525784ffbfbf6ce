"""`playhead watch`: gives a room whose worker died a new one; several watchers may run at once.

A LiveKit server that loses a worker without a word (killed process, dead machine) keeps its
participant for some 20 s and sends the room no other worker. The watcher asks each of our
participants for an answer instead: any answer means alive, two silences mean dead.

Who acts is settled on the room itself: a watcher makes a dispatch under a name that nobody serves,
and the oldest of those holds the room. It then looks again and acts only on what it saw before.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import re
import secrets
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import aiohttp
from livekit import api

from playhead.engine.errors import ConfigError
from playhead.worker import logs

logger = logging.getLogger(__name__)

SPEAKER_NAME = "playhead"
"""Under this name the worker takes its jobs."""
LEASE_NAME = "playhead-watch"
"""An agent name that no worker serves: its dispatches are the watchers' locks."""
LOOK_S = 1.0
PROBE_S = 1.5
"""The SDK answers a call for an unknown method by itself, in milliseconds."""
SILENCES = 2
ABSENT_S = 5.0
"""A room that was sent a worker may be without it so long: it loads, or joins."""
RETRY_S = 10.0
"""A room nobody came to is tried again; also how long a dead watcher's lock holds."""
ALIVE_METHOD = "playhead.alive"
UNAUTHORIZED = 401
EVENTS_TOPIC = "playhead.events"
LOST_EVENT: Mapping[str, str] = {
    "type": "error",
    "request_id": "",
    "code": "worker_lost",
    "message": "the worker died: what it was speaking is lost, another one comes",
}
_DESCRIPTION = (
    "Watch the rooms of a LiveKit server: one with callers whose worker died gets exactly one new "
    "worker. Run two, on two machines."
)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One request for a worker, as the server keeps it."""

    id: str
    agent_name: str
    metadata: str
    created_at: int
    """Nanoseconds, the server's clock."""


@dataclass(frozen=True, slots=True)
class RoomView:
    """What a watcher sees of a room."""

    num_callers: int
    speakers: Mapping[str, str]
    """Our participants: sid -> identity."""
    dispatches: tuple[Dispatch, ...]


@dataclass(slots=True)
class _Noted:
    """What is remembered of one room between looks."""

    absent_since_s: float | None = None
    acted_s: float = -RETRY_S


class Watcher:
    """Looks at every room once a second; one per process."""

    def __init__(self, rooms: "ServerRooms", agent_name: str = "") -> None:
        """`agent_name` is the workers'; empty: they take every room."""
        self._rooms = rooms
        self._agent_name = agent_name
        self._own_id = secrets.token_hex(8)
        self._noted: dict[str, _Noted] = {}
        self._locks_seen_s: dict[str, float] = {}
        self.num_given = 0
        """Rooms that were given a new worker."""

    async def run(self, stop: asyncio.Event) -> None:
        """Look until told to stop; a server that does not answer is asked again."""
        told = ""
        while not stop.is_set():
            trouble = await self._trouble()
            if trouble and trouble != told:  # once, not every second of a night
                logger.warning("%s; asking on", trouble)
            elif told and not trouble:
                logger.warning("the server answers again")
            told = trouble
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_S)

    async def _trouble(self) -> str:
        """Look once; return what kept us from it, or nothing."""
        try:
            await self.look()
        except api.TwirpError as error:
            keys = ", see LIVEKIT_API_KEY and LIVEKIT_API_SECRET" * (error.status == UNAUTHORIZED)
            return f"the server refuses us: {error.status} {error.message or error.code}{keys}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return f"the server does not answer: {type(error).__name__}"
        return ""

    async def look(self) -> None:
        """Look at every room once."""
        names = await self._rooms.names()
        for gone in self._noted.keys() - set(names):
            del self._noted[gone]
        looks = await asyncio.gather(*map(self._look_at, names), return_exceptions=True)
        for name, result in zip(names, looks, strict=True):
            if isinstance(result, BaseException):
                if isinstance(result, asyncio.CancelledError):
                    raise result
                logger.warning("room could not be seen: %s", result, extra={"room": name})

    async def _look_at(self, room: str) -> None:
        noted = self._noted.setdefault(room, _Noted())
        view = await self._rooms.view(room)
        if not view.num_callers or not self._ours(view):
            noted.absent_since_s = None
            return
        answers = await asyncio.gather(
            *(self._alive(room, identity) for identity in view.speakers.values())
        )
        now_s = time.monotonic()
        if any(answers):
            noted.absent_since_s = None
            return
        if not view.speakers:
            if noted.absent_since_s is None:
                noted.absent_since_s = now_s
            if now_s - noted.absent_since_s < ABSENT_S or now_s - noted.acted_s < RETRY_S:
                return
        await self._give(room, view, noted)

    async def _alive(self, room: str, identity: str) -> bool:
        """Ask until an answer comes; False after too many silences."""
        for _ in range(SILENCES):
            if await self._rooms.answers(room, identity):
                return True
        return False

    def _ours(self, view: RoomView) -> list[Dispatch]:
        return [each for each in view.dispatches if each.agent_name == self._agent_name]

    async def _give(self, room: str, seen: RoomView, noted: _Noted) -> None:
        """Replace the dead, if the room is ours to act on and still as it was seen."""
        lock = await self._rooms.dispatch(room, LEASE_NAME, self._own_id)
        try:
            now = await self._rooms.view(room)
            if not await self._holds(room, lock, now):
                return
            ours, before = self._ours(now), self._ours(seen)
            if now.speakers.keys() != seen.speakers.keys() or ours != before:
                return  # another watcher was here, or the worker came
            metadata = max(ours, key=lambda each: each.created_at).metadata
            for identity in now.speakers.values():
                await self._rooms.remove(room, identity)
            await self._rooms.tell(room, LOST_EVENT)
            await self._rooms.dispatch(room, self._agent_name, metadata)
            for each in ours:
                await self._rooms.undo(room, each)
            noted.acted_s, noted.absent_since_s = time.monotonic(), None
            self.num_given += 1
            logger.warning("its worker is gone: a new one was asked for", extra={"room": room})
        finally:
            await self._rooms.undo(room, lock)

    async def _holds(self, room: str, lock: Dispatch, view: RoomView) -> bool:
        """Say whether our lock is the oldest; locks of watchers that died are taken away."""
        locks = [each for each in view.dispatches if each.agent_name == LEASE_NAME]
        first = min(locks, key=lambda each: (each.created_at, each.id), default=lock)
        if first.id == lock.id:
            return True
        now_s = time.monotonic()
        if now_s - self._locks_seen_s.setdefault(first.id, now_s) > RETRY_S:
            del self._locks_seen_s[first.id]
            await self._rooms.undo(room, first)
        return False


class ServerRooms:
    """Rooms of a LiveKit server through its API."""

    def __init__(self, url: str, key: str, secret: str, session: aiohttp.ClientSession) -> None:
        """Use a session of the caller's."""
        self._url = url.replace("ws", "http", 1).rstrip("/")
        self._key, self._secret, self._session = key, secret, session
        self._api = api.LiveKitAPI(self._url, key, secret, session=session)

    async def names(self) -> list[str]:
        """Return the rooms with anybody in them."""
        found = await self._api.room.list_rooms(api.ListRoomsRequest())
        return [room.name for room in found.rooms if room.num_participants]

    async def view(self, room: str) -> RoomView:
        """Return what is in a room."""
        listed = await self._api.room.list_participants(api.ListParticipantsRequest(room=room))
        kinds = api.ParticipantInfo.Kind
        callers = [each for each in listed.participants if each.kind in (kinds.STANDARD, kinds.SIP)]
        speakers = {
            each.sid: each.identity
            for each in listed.participants
            if each.kind == kinds.AGENT and each.name == SPEAKER_NAME
        }
        dispatches = await self._api.agent_dispatch.list_dispatch(room)
        kept = (_dispatch(each) for each in dispatches if not each.state.deleted_at)
        return RoomView(len(callers), speakers, tuple(kept))

    async def answers(self, room: str, identity: str) -> bool:
        """Call a method; the SDK's own refusal of an unknown one is an answer, too."""
        grants = api.VideoGrants(room_admin=True, room=room)
        token = api.AccessToken(self._key, self._secret).with_grants(grants)
        body = {
            "room": room,
            "destination_identity": identity,
            "method": ALIVE_METHOD,
            "response_timeout_ms": int(PROBE_S * 1000),
        }
        asking = self._session.post(
            f"{self._url}/twirp/livekit.RoomService/PerformRpc",
            json=body,
            headers={"Authorization": f"Bearer {token.with_ttl(timedelta(minutes=5)).to_jwt()}"},
            timeout=aiohttp.ClientTimeout(total=PROBE_S),
        )
        try:
            async with asking as answer:
                return answer.status == 200 or "not supported" in (await answer.text()).lower()
        except TimeoutError:
            return False

    async def dispatch(self, room: str, agent_name: str, metadata: str) -> Dispatch:
        """Ask the server to send a worker."""
        request = api.CreateAgentDispatchRequest(
            room=room, agent_name=agent_name, metadata=metadata
        )
        return _dispatch(await self._api.agent_dispatch.create_dispatch(request))

    async def undo(self, room: str, dispatch: Dispatch) -> None:
        """Take a dispatch back; one that is gone already is as good."""
        with contextlib.suppress(api.TwirpError):
            await self._api.agent_dispatch.delete_dispatch(dispatch.id, room)

    async def remove(self, room: str, identity: str) -> None:
        """Remove a participant; one that is gone already is as good."""
        with contextlib.suppress(api.TwirpError):
            await self._api.room.remove_participant(
                api.RoomParticipantIdentity(room=room, identity=identity)
            )

    async def tell(self, room: str, event: Mapping[str, str]) -> None:
        """Send everybody in a room an event, as a worker would."""
        data = json.dumps(event).encode()
        request = api.SendDataRequest(
            room=room, data=data, kind=api.DataPacket.Kind.RELIABLE, topic=EVENTS_TOPIC
        )
        with contextlib.suppress(api.TwirpError):
            await self._api.room.send_data(request)


def _dispatch(found: api.AgentDispatch) -> Dispatch:
    return Dispatch(found.id, found.agent_name, found.metadata, found.state.created_at)


def add_arguments(parser: argparse.ArgumentParser, env: Mapping[str, str]) -> None:
    """Add the arguments of the command; secrets come from the environment alone."""
    parser.description = _DESCRIPTION
    url = env.get("LIVEKIT_URL") or "ws://127.0.0.1:7880"
    parser.add_argument("--url", default=url, help="default ws://127.0.0.1:7880 [LIVEKIT_URL]")
    parser.add_argument("--agent-name", default="", help="as the workers have it; default: none")
    logs.add_arguments(parser, env)
    key, secret = env.get("LIVEKIT_API_KEY", ""), env.get("LIVEKIT_API_SECRET", "")
    parser.set_defaults(access=(key, secret))


def run(args: argparse.Namespace) -> int:
    """Watch until SIGTERM; return 0. Raises ConfigError without keys or a server's address."""
    if not all(args.access):
        raise ConfigError("set LIVEKIT_API_KEY and LIVEKIT_API_SECRET: the watcher asks the server")
    if not re.match(r"(ws|http)s?://[^/]", args.url):
        raise ConfigError(f"--url {args.url!r}; allowed are ws://HOST:PORT and wss://HOST")
    asyncio.run(_watch(args.url, args.access, args.agent_name))
    return 0


async def _watch(url: str, access: tuple[str, str], agent_name: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        logger.info("watching the rooms of %s", url)
        await Watcher(ServerRooms(url, *access, session), agent_name).run(stop)

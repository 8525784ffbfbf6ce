"""RoomSession: one room from joining to leaving; wires participants, text, track and events.

    playhead.text (stream) ─▶ permissions ─▶ TextIntake ─▶ Speaker ─▶ track, playhead.events,
    playhead.interrupt (RPC) ─▶ permissions ────────────────▲         lk.transcription
    playhead.receiver (lossy data) ─▶ Receivers ────────────┘

Lives on the room's loop. What a participant does wrong is answered to it and changes nothing.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from livekit import rtc

from playhead.worker.client import EngineClient
from playhead.worker.counters import RoomCounters
from playhead.worker.direct_pump import DirectPump, make_direct_source
from playhead.worker.events import Finished, Interrupted, SpeakerEvent, SpeechError
from playhead.worker.keep import PcmKeeper
from playhead.worker.outbox import Outbox
from playhead.worker.pace import Pace
from playhead.worker.permissions import ParticipantKind, Permissions, RoomPolicy
from playhead.worker.receivers import Receivers
from playhead.worker.speaker import Speaker
from playhead.worker.text_intake import TEXT_TOPIC, TextIntake, TextLimits
from playhead.worker.text_request import request_id_of
from playhead.worker.track import (
    TRACK_NAME,
    Pump,
    PumpKind,
    QueuedPump,
    make_source,
    track_options,
)

logger = logging.getLogger(__name__)

RECEIVER_TOPIC = "playhead.receiver"
INTERRUPT_METHOD = "playhead.interrupt"
RPC_UNAUTHORIZED = 403
ANNOUNCE_S = 3.5
"""A participant that publishes nothing is announced up to 3 s late; its text may be first."""
SETTLE_S = 0.3
"""From a listener's arrival to its subscription, where the SDK tells only the first one."""
RTT_S = 5.0
MAX_UNKNOWN = 16
"""Requests of not yet announced participants that may wait at a time."""
REFUSALS_PER_S = 1.0
"""A participant is told so often that it may not; the rest of its tries cost nothing."""

_KINDS: dict[int, ParticipantKind] = {
    rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD: "person",
    rtc.ParticipantKind.PARTICIPANT_KIND_SIP: "phone",
    rtc.ParticipantKind.PARTICIPANT_KIND_CONNECTOR: "phone",
    rtc.ParticipantKind.PARTICIPANT_KIND_AGENT: "agent",
}


class RoomSession:
    """The worker's part in one room."""

    def __init__(
        self,
        room: rtc.Room,
        client: EngineClient,
        policy: RoomPolicy,
        limits: TextLimits | None = None,
        *,
        counters: RoomCounters | None = None,
        clock_events: bool = False,
        keep_pcm: Path | None = None,
        pump: PumpKind = "queued",
    ) -> None:
        """Take a room that is not connected yet, so that no event is missed."""
        self._room = room
        self._counters = counters or RoomCounters()
        self._permissions = Permissions(policy)
        self._policy = policy
        self._receivers = Receivers()
        self._outbox = Outbox(room)
        self._source = make_source() if pump == "queued" else make_direct_source()
        self._speaker = Speaker(
            client,
            self._make_pump(pump, client.pace),
            self._receivers,
            self._emit,
            clock_events=clock_events,
            keeper=PcmKeeper(keep_pcm) if keep_pcm is not None else None,
        )
        self._intake = TextIntake(self._speaker, self._emit, limits or TextLimits())
        self._joined = asyncio.Event()
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused_at_s: dict[str, float] = {}
        self._num_unknown = 0
        self._subscribed = False
        self._holds: set[str] = set()
        """Why nothing is sent; empty: it is."""
        room.register_text_stream_handler(TEXT_TOPIC, self._on_text)
        room.on("data_received", self._on_data)
        room.on("participant_connected", self._on_joined)
        room.on("participant_disconnected", self._on_left)
        room.on("local_track_subscribed", lambda _: self._on_subscribed())
        room.on("reconnecting", lambda: self._hold("reconnecting", True))
        room.on("reconnected", lambda: self._hold("reconnecting", False))
        room.on("track_muted", lambda who, _: self._on_muted(who, True))
        room.on("track_unmuted", lambda who, _: self._on_muted(who, False))
        room.on("disconnected", lambda _: self._ended.set())

    async def run(self) -> None:
        """Publish the track and serve the connected room until it ends or this is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                parts = [self._outbox.run(), self._speaker.run(), self._measure_rtt()]
                tasks = [group.create_task(part) for part in parts]
                await self._enter()
                await self._ended.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self._intake.close()
            for pending in self._tasks:
                pending.cancel()
            await self._source.aclose()

    async def _enter(self) -> None:
        present = sorted(self._room.remote_participants.values(), key=_joined_at)
        for participant in present:
            self._on_joined(participant)
        local = self._room.local_participant
        local.register_rpc_method(INTERRUPT_METHOD, self._on_interrupt)
        track = rtc.LocalAudioTrack.create_audio_track(TRACK_NAME, self._source)
        publication = await local.publish_track(track, track_options())
        self._outbox.track_sid = publication.sid
        self._counters.add("rooms")
        logger.info("room entered", extra={"room": self._room.name})

    def _make_pump(self, kind: PumpKind, pace: Pace) -> Pump:
        def restarted() -> None:
            self._speaker.restarted()

        if kind == "queued":
            return QueuedPump(self._source, restarted, pace.longest_s)
        return DirectPump(self._source, self._receivers.bridge_s, restarted)

    # -- participants

    def _on_joined(self, participant: rtc.RemoteParticipant) -> None:
        identity = participant.identity
        kind = _KINDS.get(participant.kind, "other")
        self._permissions.joined(identity, kind)
        if kind in ("person", "phone") or identity == self._policy.linked_participant:
            self._receivers.add(identity, "phone" if kind == "phone" else "web")
            self._hold("deaf", self._receivers.deaf)
            self._later(SETTLE_S, self._listen)
        self._receivers.linked = self._permissions.linked
        self._joined.set()
        self._joined = asyncio.Event()

    def _on_left(self, participant: rtc.RemoteParticipant) -> None:
        had_listeners = len(self._receivers) > 0
        self._permissions.left(participant.identity)
        self._receivers.remove(participant.identity)
        self._receivers.linked = self._permissions.linked
        self._refused_at_s.pop(participant.identity, None)
        if had_listeners and len(self._receivers) == 0:
            self._speaker.unheard()
        self._hold("deaf", self._receivers.deaf)

    def _on_muted(self, participant: rtc.Participant, muted: bool) -> None:
        """The room's administration silenced the speaker, or lets it speak again."""
        if participant is self._room.local_participant:
            self._hold("muted", muted)

    def _hold(self, why: str, held: bool) -> None:
        """Pause from the first reason on until the last is gone: a held speech costs no step."""
        before = bool(self._holds)
        (self._holds.add if held else self._holds.discard)(why)
        if bool(self._holds) != before:
            (self._speaker.pause if self._holds else self._speaker.resume)()

    def _on_subscribed(self) -> None:
        """Somebody subscribed for the first time; with agents about, it may be one of them."""
        self._subscribed = True
        if len(self._receivers) > 0 or not self._permissions.has_agents:
            self._speaker.listen()

    def _listen(self) -> None:
        if self._subscribed and len(self._receivers) > 0:
            self._speaker.listen()

    # -- what participants ask for

    def _on_text(self, reader: rtc.TextStreamReader, identity: str) -> None:
        if self._permissions.may_speak(identity):
            self._intake.accept(reader)
        elif self._permissions.known(identity) or self._num_unknown >= MAX_UNKNOWN:
            self._refuse_text(reader, identity)
        else:
            self._spawn(self._decide_text(reader, identity))

    async def _decide_text(self, reader: rtc.TextStreamReader, identity: str) -> None:
        if await self._may_speak(identity):
            self._intake.accept(reader)
        else:
            self._refuse_text(reader, identity)

    def _refuse_text(self, reader: rtc.TextStreamReader, identity: str) -> None:
        reader.close()
        attributes = reader.info.attributes or {}
        self._refuse(identity, request_id_of(attributes, reader.info.stream_id))

    async def _on_interrupt(self, call: rtc.RpcInvocationData) -> str:
        if not await self._may_speak(call.caller_identity):
            self._refuse(call.caller_identity, None)
            raise rtc.RpcError(RPC_UNAUTHORIZED, "unauthorized")
        heard = self._speaker.interrupt()
        body = {
            "request_id": heard.request_id,
            "heard_text": heard.text,
            "heard_s": round(heard.heard_s, 3),
        }
        return json.dumps(body)

    def _on_data(self, packet: rtc.DataPacket) -> None:
        if packet.topic == RECEIVER_TOPIC and packet.participant is not None:
            identity = packet.participant.identity
            if not self._receivers.take(identity, packet.data, time.monotonic()):
                self._counters.add("reports_dropped")
            self._hold("deaf", self._receivers.deaf)

    async def _may_speak(self, identity: str) -> bool:
        """Answer, once the participant is announced or ought to be."""
        if self._permissions.known(identity) or self._num_unknown >= MAX_UNKNOWN:
            return self._permissions.may_speak(identity)
        self._num_unknown += 1
        try:
            async with asyncio.timeout(ANNOUNCE_S):
                while not self._permissions.known(identity):
                    await self._joined.wait()
        except TimeoutError:
            pass
        finally:
            self._num_unknown -= 1
        return self._permissions.may_speak(identity)

    def _refuse(self, identity: str, request_id: str | None) -> None:
        self._counters.add("unauthorized")
        now_s = time.monotonic()
        if now_s - self._refused_at_s.get(identity, -1e9) >= 1 / REFUSALS_PER_S:
            self._refused_at_s[identity] = now_s
            logger.info("unauthorized", extra={"identity": identity})
            self._outbox.unauthorized(identity, request_id)

    # -- the rest

    def _emit(self, event: SpeakerEvent) -> None:
        self._outbox.event(event)
        self._counters.event(event)
        if isinstance(event, Finished | Interrupted | SpeechError):
            self._intake.ended(event.request_id)

    async def _measure_rtt(self) -> None:
        while True:
            await asyncio.sleep(RTT_S)
            try:
                stats = await self._room.get_rtc_stats()
            except Exception as error:  # the SDK's own, while a room reconnects
                logger.debug("no transport stats: %s", type(error).__name__)
                continue
            pairs = (s.candidate_pair.candidate_pair for s in stats.publisher_stats)
            rtts_s = [pair.current_round_trip_time for pair in pairs if pair.nominated]
            if rtts_s:
                self._receivers.set_publisher_rtt_s(max(rtts_s))

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, action)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _joined_at(participant: rtc.RemoteParticipant) -> float:
    joined = participant.joined_at
    return joined.timestamp() if joined is not None else 0.0

"""RoomTrack: the track a session speaks through in a room, and what its listeners report."""

import asyncio
import time

from livekit import rtc
from livekit.agents.utils.aio import cancel_and_wait
from livekit.plugins.playhead.pump_output import PumpOutput

from playhead.worker.track import TRACK_NAME, QueuedPump, make_source, track_options

RECEIVER_TOPIC = "playhead.receiver"
_PHONES = (
    rtc.ParticipantKind.PARTICIPANT_KIND_SIP,
    rtc.ParticipantKind.PARTICIPANT_KIND_CONNECTOR,
)


class RoomTrack:
    """Publishes into a room once it is connected; lives on the room's loop."""

    def __init__(self, room: rtc.Room) -> None:
        """Take a room that may not be connected yet."""
        self._room = room
        self._source = make_source()
        self.output = PumpOutput(QueuedPump(self._source))
        """The sink of the session."""
        self._publishing: asyncio.Task[None] | None = None
        self._handlers = {
            "connection_state_changed": self._on_state,
            "data_received": self._on_data,
            "participant_connected": self._on_joined,
            "participant_disconnected": self._on_left,
        }
        for name, handler in self._handlers.items():
            room.on(name, handler)  # type: ignore[arg-type]
        if room.isconnected():
            self._begin()

    async def aclose(self) -> None:
        """Stop playing and leave the room's events; the track goes with the room."""
        for name, handler in self._handlers.items():
            self._room.off(name, handler)  # type: ignore[arg-type]
        if self._publishing is not None:
            await cancel_and_wait(self._publishing)
        await self.output.aclose()
        await self._source.aclose()

    def _on_state(self, state: rtc.ConnectionState.ValueType) -> None:
        if state == rtc.ConnectionState.CONN_CONNECTED:
            self._begin()

    def _begin(self) -> None:
        if self._publishing is None:
            for participant in self._room.remote_participants.values():
                self._on_joined(participant)
            self._publishing = asyncio.create_task(self._publish())

    async def _publish(self) -> None:
        track = rtc.LocalAudioTrack.create_audio_track(TRACK_NAME, self._source)
        local = self._room.local_participant
        publication = await local.publish_track(track, track_options())
        await publication.wait_for_subscription()
        self.output.listen()

    def _on_joined(self, participant: rtc.RemoteParticipant) -> None:
        if participant.kind in _PHONES:
            self.output.receivers.add(participant.identity, "phone")
        elif participant.kind == rtc.ParticipantKind.PARTICIPANT_KIND_STANDARD:
            self.output.receivers.add(participant.identity, "web")

    def _on_left(self, participant: rtc.RemoteParticipant) -> None:
        self.output.receivers.remove(participant.identity)

    def _on_data(self, packet: rtc.DataPacket) -> None:
        if packet.topic == RECEIVER_TOPIC and packet.participant is not None:
            identity = packet.participant.identity
            self.output.receivers.take(identity, packet.data, time.monotonic())

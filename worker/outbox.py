"""Outbox: everything a worker tells its room, in order; on the room's loop.

Events go as reliable data on `playhead.events`, captions as LiveKit transcription text streams.
Sending waits for the SDK, so it happens in one task behind a bounded queue.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

from livekit import rtc

from playhead.worker.events import Caption, SpeakerEvent, to_json

logger = logging.getLogger(__name__)

EVENTS_TOPIC = "playhead.events"
TRANSCRIPTION_TOPIC = "lk.transcription"
MAX_WAITING = 2000
"""More than that waiting means the room is gone; the newest are dropped."""

_Send = Callable[[], Awaitable[None]]


class Outbox:
    """One room's outgoing messages."""

    def __init__(self, room: rtc.Room) -> None:
        """Take a room; sending starts with `run`."""
        self._room = room
        self._waiting: asyncio.Queue[_Send] = asyncio.Queue(MAX_WAITING)
        self._captions: dict[str, rtc.TextStreamWriter] = {}
        self.track_sid: str | None = None
        """The track that captions belong to."""

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            send = await self._waiting.get()
            try:
                await send()
            except Exception as error:  # whatever the SDK says of a room that is going away
                logger.debug("message to the room was not sent: %s", type(error).__name__)

    def event(self, event: SpeakerEvent) -> None:
        """Queue a speaker's event or caption."""
        if isinstance(event, Caption):
            self._put(lambda: self._caption(event))
        else:
            self._put(lambda: self._publish(to_json(event), []))

    def unauthorized(self, identity: str, request_id: str | None) -> None:
        """Queue the refusal of a participant; it alone is told."""
        body = {
            "type": "unauthorized",
            "request_id": request_id,
            "message": "only agents, the linked participant and allowed identities may do this",
        }
        self._put(lambda: self._publish(json.dumps(body).encode(), [identity]))

    def _put(self, send: _Send) -> None:
        try:
            self._waiting.put_nowait(send)
        except asyncio.QueueFull:
            logger.warning("messages to the room pile up; one was dropped")

    async def _publish(self, payload: bytes, identities: list[str]) -> None:
        await self._room.local_participant.publish_data(
            payload, reliable=True, topic=EVENTS_TOPIC, destination_identities=identities
        )

    async def _caption(self, caption: Caption) -> None:
        writer = self._captions.get(caption.request_id)
        if writer is None:
            attributes = self._attributes(caption.request_id, final=False)
            writer = await self._room.local_participant.stream_text(
                topic=TRANSCRIPTION_TOPIC, attributes=attributes
            )
            self._captions[caption.request_id] = writer
        if caption.text:
            await writer.write(caption.text)
        if caption.final:
            del self._captions[caption.request_id]
            await writer.aclose(attributes=self._attributes(caption.request_id, final=True))

    def _attributes(self, request_id: str, final: bool) -> dict[str, str]:
        attributes = {
            "lk.segment_id": request_id,
            "lk.transcription_final": "true" if final else "false",
        }
        if self.track_sid is not None:
            attributes["lk.transcribed_track_id"] = self.track_sid
        return attributes

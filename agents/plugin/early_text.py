"""EarlyText: captions for listeners whom the server has not announced yet, and chat from them.

A LiveKit server lets a participant that publishes nothing hear and send at once, but tells the
room of it up to 3 s later. Packets arrive in the meantime, both ways; AgentSession, however,
drops its captions until it knows somebody, and chat of whom it does not know. Lives on the
session's loop.
"""

import asyncio
from typing import Any

from livekit import rtc
from livekit.agents import AgentSession

CHAT_TOPIC = "lk.chat"
ANNOUNCED_S = 5.0
"""How long chat waits for its sender to be announced: servers collect announcements for 3 s."""


class EarlyText:
    """Sends a session's captions from the start, and keeps chat until its sender is known."""

    def __init__(self, session: AgentSession[Any], room: rtc.Room) -> None:
        """Take a session that has not started yet."""
        self._session = session
        self._room = room
        self._named: object = None
        """The sink that sends captions in the agent's name."""
        self._handler: Any = None
        """Takes chat for the session."""
        self._held: dict[str, list[rtc.TextStreamReader]] = {}
        """Chat by the identity of its sender."""
        session.on("agent_state_changed", self._on_state)
        room.on("participant_connected", self._on_joined)

    async def aclose(self) -> None:
        """Leave the room's and the session's events; chat that waits is dropped."""
        self._session.off("agent_state_changed", self._on_state)
        self._room.off("participant_connected", self._on_joined)
        self._held.clear()

    def _on_state(self, _: object) -> None:
        """Look at what the session has set up: all is there once it says that it listens."""
        if self._room.isconnected():
            self._send_captions()
        self._take_chat()

    def _send_captions(self) -> None:
        """Name the agent as who speaks; the session does it once it knows a participant."""
        sink = self._session.output.transcription
        while sink is not None and not hasattr(sink, "set_participant"):
            sink = sink.next_in_chain
        if sink is not None and sink is not self._named:
            self._named = sink
            sink.set_participant(self._room.local_participant.identity)

    def _take_chat(self) -> None:
        """Put ourselves before the session's handler; no public name leads to it."""
        handler = getattr(self._room, "_text_stream_handlers", {}).get(CHAT_TOPIC)
        if handler is not None and handler != self._on_chat:
            self._handler = handler
            self._room.unregister_text_stream_handler(CHAT_TOPIC)
            self._room.register_text_stream_handler(CHAT_TOPIC, self._on_chat)

    def _on_chat(self, reader: rtc.TextStreamReader, identity: str) -> None:
        if identity in self._room.remote_participants:
            self._handler(reader, identity)
            return
        self._held.setdefault(identity, []).append(reader)
        asyncio.get_running_loop().call_later(ANNOUNCED_S, self._release, identity)

    def _on_joined(self, participant: rtc.RemoteParticipant) -> None:
        self._release(participant.identity)

    def _release(self, identity: str) -> None:
        for reader in self._held.pop(identity, []):
            self._handler(reader, identity)

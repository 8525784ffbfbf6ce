"""Captions for, and chat from, a listener that the server has not announced to the agent yet."""

import asyncio

import pytest
from livekit import rtc
from livekit.agents import Agent, AgentSession
from livekit.plugins import playhead

from playhead.worker.demo.server import Access
from playhead.worker.listener import Listener
from tests.agents.conftest import MakeTts
from tests.agents.fakes import ScriptedLLM, WordSpeaker, until

pytestmark = [pytest.mark.livekit, pytest.mark.slow]

GREETING = "Hello there."
REPLY = "Take the second left."


async def test_no_text_is_lost_before_the_listener_is_announced(
    make_tts: MakeTts, livekit_server: Access, room_name: str
) -> None:
    voice, _ = make_tts(WordSpeaker(), aligned_transcript=True)
    room, listener = rtc.Room(), Listener()
    session: AgentSession[None] = AgentSession(
        llm=ScriptedLLM(REPLY), tts=voice, vad=None, use_tts_aligned_transcript=True
    )
    playhead.attach(session, room)
    try:
        token = livekit_server.token("agent", room_name, kind="agent")
        await room.connect(livekit_server.url, token)
        await session.start(Agent(instructions="Help."), room=room)
        session.say(GREETING)
        # A participant that publishes nothing is announced up to 3 s after it hears and speaks.
        await listener.join(livekit_server.url, livekit_server.token("listener", room_name))
        await until(lambda: "".join(listener.captions) == GREETING)
        await listener.room.local_participant.send_text("Where?", topic="lk.chat")
        await until(lambda: "".join(listener.captions) == GREETING + REPLY)
    finally:
        await listener.leave()
        await session.aclose()
        await asyncio.sleep(0)  # the session's close event ends what attach began
        await room.disconnect()

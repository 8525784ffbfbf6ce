"""A voice agent on the telephone: it answers calls, and calls somebody when a job says whom.

    export LIVEKIT_URL=... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=...
    python phone_bot.py dev

Trunks and the rule that sends calls here are in deploy/sip/. A job whose metadata is
`{"call": "+14155550100", "trunk": "ST_..."}` dials that number; any other waits for its caller.
"""

import asyncio
import json
import os

from livekit import api, rtc
from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    JobContext,
    JobExecutorType,
    JobProcess,
    cli,
    inference,
)
from livekit.plugins import playhead

AGENT_NAME = "phone-bot"
INSTRUCTIONS = "You answer phone calls in one or two short spoken sentences."
GREETING = "Hello, this is the phone bot. How can I help you?"
CALL_STATUS = "sip.callStatus"


def prepare(process: JobProcess) -> None:
    """Choose the models of a job before it starts."""
    process.userdata["llm"] = os.getenv("LLM_MODEL", "openai/gpt-4.1-mini")
    process.userdata["stt"] = os.getenv("STT_MODEL", "deepgram/nova-3")


async def talk(context: JobContext) -> None:
    """Call somebody or take a call, and greet once somebody listens."""
    await context.connect()
    wanted = json.loads(context.job.metadata or "{}")
    if "call" in wanted:
        await context.api.sip.create_sip_participant(
            api.CreateSIPParticipantRequest(
                room_name=context.room.name,
                sip_trunk_id=wanted["trunk"],
                sip_call_to=wanted["call"],
                participant_identity="callee",
            )
        )
    caller = await context.wait_for_participant(kind=rtc.ParticipantKind.PARTICIPANT_KIND_SIP)
    models = context.proc.userdata
    session: AgentSession[None] = AgentSession(
        llm=models["llm"],
        stt=models["stt"],
        vad=inference.VAD() if models["stt"] else None,
        tts=playhead.TTS(),  # at its own rate: the SIP bridge makes 8 kHz of it, in one step
        use_tts_aligned_transcript=True,
    )
    playhead.attach(session, context.room)  # knows that a telephone sends no receiver reports
    await session.start(Agent(instructions=INSTRUCTIONS), room=context.room)
    if await answered(context.room, caller):
        session.say(GREETING)


async def answered(room: rtc.Room, callee: rtc.RemoteParticipant) -> bool:
    """Wait until the other side has picked up: what is said while it rings nobody hears.

    False: it was gone before.
    """
    changed = asyncio.Event()
    room.on("participant_attributes_changed", lambda *_: changed.set())
    room.on("participant_disconnected", lambda *_: changed.set())
    while callee.attributes.get(CALL_STATUS, "active") != "active":
        if callee.identity not in room.remote_participants:
            return False
        await changed.wait()
        changed.clear()
    return True


# Jobs are threads here, so all calls of the process speak through one engine.
server = AgentServer(job_executor_type=JobExecutorType.THREAD, setup_fnc=prepare)
server.rtc_session(talk, agent_name=AGENT_NAME)

if __name__ == "__main__":
    playhead.TTS().prewarm()
    cli.run_app(server)

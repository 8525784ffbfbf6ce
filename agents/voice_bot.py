"""A voice agent: it listens, thinks with an LLM and answers with playhead's voice.

    export LIVEKIT_URL=... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=...
    python voice_bot.py dev

LLM_MODEL and STT_MODEL name models of LiveKit Inference; without STT_MODEL callers write to the
bot. With LLM_URL the LLM is any that speaks OpenAI's protocol, such as http://127.0.0.1:11434/v1,
and LLM_API_KEY its key (pip install livekit-plugins-openai). Speech needs no key and no service:
it is made in this process, or where PLAYHEAD_URL points.
"""

import os

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

if "LLM_URL" in os.environ:
    from livekit.plugins import openai

INSTRUCTIONS = "You answer callers in one or two short spoken sentences, without lists or symbols."
GREETING = "Hello, how can I help you?"


def prepare(process: JobProcess) -> None:
    """Choose the models of a job before it starts."""
    model, url = os.getenv("LLM_MODEL", "openai/gpt-4.1-mini"), os.getenv("LLM_URL")
    key = os.getenv("LLM_API_KEY", "none")
    process.userdata["llm"] = openai.LLM(model=model, base_url=url, api_key=key) if url else model
    process.userdata["stt"] = os.getenv("STT_MODEL")


async def answer_callers(context: JobContext) -> None:
    """Greet whoever is in the room and answer until they leave."""
    models = context.proc.userdata
    session: AgentSession[None] = AgentSession(
        llm=models["llm"],
        stt=models["stt"],
        vad=inference.VAD() if models["stt"] else None,
        tts=playhead.TTS(),
        use_tts_aligned_transcript=True,  # captions follow the voice where its word times are exact
    )
    playhead.attach(session, context.room)  # the engine knows what was heard, and so the history
    await session.start(Agent(instructions=INSTRUCTIONS), room=context.room)
    session.say(GREETING)


# Jobs are threads here, so all rooms of the process speak through one engine.
server = AgentServer(job_executor_type=JobExecutorType.THREAD, setup_fnc=prepare)
server.rtc_session(answer_callers)

if __name__ == "__main__":
    playhead.TTS().prewarm()
    cli.run_app(server)

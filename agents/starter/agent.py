"""A voice agent to start from: change its instructions, give it tools, choose its models."""

import os

from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    JobContext,
    JobExecutorType,
    cli,
    inference,
)
from livekit.plugins import playhead


class Assistant(Agent):
    """What the agent is, and what it says first."""

    def __init__(self) -> None:
        """Give it its instructions."""
        super().__init__(instructions="You answer callers in one or two short spoken sentences.")

    async def on_enter(self) -> None:
        """Greet."""
        self.session.say("Hello, how can I help you?")


async def answer(context: JobContext) -> None:
    """Answer whoever is in the room."""
    session: AgentSession[None] = AgentSession(
        llm=os.getenv("LLM_MODEL", "openai/gpt-4.1-mini"),
        stt=os.getenv("STT_MODEL", "deepgram/nova-3"),
        vad=inference.VAD(),
        tts=playhead.TTS(),
        use_tts_aligned_transcript=True,
    )
    playhead.attach(session, context.room)
    await session.start(Assistant(), room=context.room)


server = AgentServer(job_executor_type=JobExecutorType.THREAD)
server.rtc_session(answer)

if __name__ == "__main__":
    playhead.TTS().prewarm()
    cli.run_app(server)

"""A voice agent that changes its voice and language when the caller asks it to.

    export LIVEKIT_URL=... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=... PLAYHEAD_MODEL=owner/model
    python multilingual.py dev

The LLM calls `change_voice`; what is being said keeps its voice, the next sentence has the new one.
"""

import os

from livekit.agents import (
    Agent,
    AgentServer,
    AgentSession,
    JobContext,
    JobExecutorType,
    JobProcess,
    RunContext,
    cli,
    function_tool,
)
from livekit.plugins import playhead

INSTRUCTIONS = (
    "You answer in one or two short spoken sentences, in the caller's language. Call change_voice "
    "before you answer in another language, or when the caller asks for another voice."
)


class Polyglot(Agent):
    """Speaks with the voices of one TTS."""

    def __init__(self, speech: playhead.TTS, voices: list[playhead.Voice]) -> None:
        """Take the voices there are."""
        names = ", ".join(voice.name for voice in voices)
        languages = ", ".join(voices[0].languages) if voices else "english"
        super().__init__(instructions=f"{INSTRUCTIONS} Voices: {names}. Languages: {languages}.")
        self._speech = speech
        self._voices = {voice.name: voice for voice in voices}

    @function_tool
    async def change_voice(self, context: RunContext[None], voice: str, language: str) -> str:
        """Change the voice and language of everything said from now on.

        Args:
            voice: One of the voices.
            language: One of the languages, or auto.
        """
        if voice not in self._voices:
            return f"there is no voice {voice}; there are: {', '.join(self._voices)}"
        if language not in ("auto", *self._voices[voice].languages):
            return (
                f"{language} can't be spoken; allowed: {', '.join(self._voices[voice].languages)}"
            )
        self._speech.update_options(voice=voice, language=language)
        return f"speaking as {voice}"


def prepare(process: JobProcess) -> None:
    """Choose the models of a job before it starts."""
    process.userdata["llm"] = os.getenv("LLM_MODEL", "openai/gpt-4.1-mini")
    process.userdata["stt"] = os.getenv("STT_MODEL")


async def answer_callers(context: JobContext) -> None:
    """Answer whoever is in the room, in a voice of their choice."""
    models, speech = context.proc.userdata, playhead.TTS()
    agent = Polyglot(speech, await speech.list_voices())
    session: AgentSession[None] = AgentSession(llm=models["llm"], stt=models["stt"], tts=speech)
    playhead.attach(session, context.room)
    await session.start(agent, room=context.room)


# Jobs are threads here, so all rooms of the process speak through one engine.
server = AgentServer(job_executor_type=JobExecutorType.THREAD, setup_fnc=prepare)
server.rtc_session(answer_callers)

if __name__ == "__main__":
    playhead.TTS().prewarm()
    cli.run_app(server)

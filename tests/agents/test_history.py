"""What a foreign AgentSession keeps of a reply that was cut, against what was heard of it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from livekit.agents import Agent, AgentSession
from livekit.agents.voice.io import TextOutput
from livekit.agents.voice.transcription.synchronizer import TranscriptSynchronizer
from livekit.plugins import playhead
from livekit.plugins.playhead.attach import speak_through
from livekit.plugins.playhead.pump_output import PumpOutput

from playhead.engine.receiver import PRIOR_S
from playhead.engine.units import SAMPLE_RATE_HZ
from playhead.worker.client import EngineClient
from playhead.worker.track import QueuedPump
from tests.agents.fakes import (
    RealTimeSink,
    ScriptedCarrier,
    ScriptedLLM,
    WordSpeaker,
    said,
    until,
)
from tests.agents.virtual import NativeQueue, run_virtual

NUMBERS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
WORDS = [word + " " for word in NUMBERS.split(" ")]
FRAMES_PER_WORD = 4
WORD_S = 0.32
CUTS_S = (0.3, 1.0, 2.7)
"""Report 4 of the contract; the others are random."""


class Captions(TextOutput):
    """Where the framework's captions end."""

    def __init__(self) -> None:
        super().__init__(label="captions", next_in_chain=None)
        self.text = ""

    async def capture_text(self, text: str) -> None:
        self.text += text

    def flush(self) -> None:
        self.text += "|"


def voice_of(estimated: bool = False) -> tuple[playhead.TTS, ScriptedCarrier]:
    carrier = ScriptedCarrier(WordSpeaker(estimated, FRAMES_PER_WORD))
    client = EngineClient(carrier)
    client.start()
    return playhead.TTS(engine=client, aligned_transcript=not estimated), carrier


Heard = Callable[[], float]
"""Seconds of the running reply that reached the ear."""


@asynccontextmanager
async def attached(
    model: ScriptedLLM, *, captions: bool, estimated: bool = False
) -> AsyncIterator[tuple[AgentSession[None], Heard, PumpOutput]]:
    """Run a session over our sink, below the framework's synchronizer as in a room, or alone."""
    voice, _ = voice_of(estimated)
    session: AgentSession[None] = AgentSession(
        llm=model, tts=voice, use_tts_aligned_transcript=True, user_away_timeout=None
    )
    queue = NativeQueue()
    output = PumpOutput(QueuedPump(queue))
    speak_through(session, output)
    if captions:
        stack = TranscriptSynchronizer(next_in_chain_audio=output, next_in_chain_text=Captions())
        session.output.audio = stack.audio_output
        session.output.transcription = stack.text_output
    output.listen()
    await asyncio.sleep(0.2)  # the pump has found its ticks
    await session.start(Agent(instructions="Help."))
    begun = 0

    def heard_s() -> float:
        nonlocal begun
        if output._open is None and not output._segments:
            begun = len(queue.samples())
        samples = (len(queue.samples()) - begun) / 2
        return max(samples / SAMPLE_RATE_HZ - PRIOR_S["web"], 0.0)

    try:
        heard_s()
        yield session, heard_s, output
    finally:
        await session.aclose()
        if captions:
            await stack.aclose()
        await output.aclose()


def words_of(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize("captions", [True, False], ids=["in a room", "alone"])
def test_what_is_kept_is_what_was_heard(captions: bool) -> None:
    chance = random.Random(3)
    cuts_s = [*CUTS_S, *(chance.uniform(0.0, 4.0) for _ in range(17))]

    async def talk() -> None:
        model = ScriptedLLM(*[NUMBERS] * len(cuts_s), token_s=0.001)
        async with attached(model, captions=captions) as (session, heard_s, _):
            for cut_s in cuts_s:
                num_kept = len(said(session))
                assert heard_s() == 0.0
                handle = session.generate_reply(user_input="Count.")
                await asyncio.sleep(cut_s)
                truth = heard_s() / WORD_S
                await session.interrupt()
                await handle
                new = said(session)[num_kept:]
                if not new:
                    assert truth < 1.0, f"{truth} words were heard, nothing was kept"
                    continue
                (text, interrupted) = new[0]
                assert interrupted and NUMBERS.startswith(text)
                assert abs(words_of(text) - truth) <= 1.0, (cut_s, truth, text)
                await asyncio.sleep(0.3)

    run_virtual(talk())


@pytest.mark.parametrize("captions", [True, False], ids=["in a room", "alone"])
def test_a_reply_that_was_not_heard_is_not_kept(captions: bool) -> None:
    async def talk() -> None:
        model = ScriptedLLM(NUMBERS, NUMBERS, token_s=0.001)
        async with attached(model, captions=captions) as (session, _, output):
            output._audience.clear()  # nobody is there yet
            handle = session.generate_reply(user_input="Count.")
            await asyncio.sleep(1.0)
            await session.interrupt()
            await handle
            output.listen()
            assert said(session) == []
            handle = session.generate_reply(user_input="Count.")
            await until(lambda: bool(output._segments) and output._segments[0].started)
            await session.interrupt()  # the first samples are on their way to the ear
            await handle
            assert said(session) == []

    run_virtual(talk())


@pytest.mark.parametrize("captions", [True, False], ids=["in a room", "alone"])
def test_a_whole_reply_is_kept_whole_and_the_next_turn_too(captions: bool) -> None:
    async def talk() -> None:
        model = ScriptedLLM(NUMBERS, NUMBERS, NUMBERS, token_s=0.001)
        async with attached(model, captions=captions) as (session, _, _):
            await session.generate_reply(user_input="Count.")
            handle = session.generate_reply(user_input="Again.")
            await asyncio.sleep(1.5)
            await session.interrupt()
            await handle
            await session.generate_reply(user_input="Again.")
            texts = said(session)
            assert texts[0] == (NUMBERS, False) and texts[2] == (NUMBERS, False)
            assert texts[1][1] and NUMBERS.startswith(texts[1][0])

    run_virtual(talk())


def test_estimated_words_make_the_history_true_though_captions_do_not_use_them() -> None:
    async def talk() -> None:
        model = ScriptedLLM(NUMBERS, token_s=0.001)
        async with attached(model, captions=True, estimated=True) as (session, heard_s, _):
            handle = session.generate_reply(user_input="Count.")
            await asyncio.sleep(2.7)
            truth = heard_s() / WORD_S
            await session.interrupt()
            await handle
            ((text, _),) = said(session)
            assert abs(words_of(text) - truth) <= 1.0

    run_virtual(talk())


def test_a_pause_stops_what_was_heard() -> None:
    async def talk() -> None:
        model = ScriptedLLM(NUMBERS, token_s=0.001)
        async with attached(model, captions=True) as (session, heard_s, output):
            handle = session.generate_reply(user_input="Count.")
            await asyncio.sleep(1.5)
            output.pause()
            await asyncio.sleep(30.0)
            truth = heard_s() / WORD_S
            await session.interrupt()
            await handle
            ((text, _),) = said(session)
            assert abs(words_of(text) - truth) <= 1.0

    run_virtual(talk())


@pytest.mark.parametrize("captions", [True, False], ids=["in a room", "alone"])
def test_a_storm_of_pauses_leaves_every_turn_true(captions: bool) -> None:
    chance = random.Random(8)

    async def talk() -> None:
        model = ScriptedLLM(*[NUMBERS] * 12, token_s=0.001)
        async with attached(model, captions=captions) as (session, heard_s, output):
            for turn in range(12):
                num_kept = len(said(session))
                assert heard_s() == 0.0
                handle = session.generate_reply(user_input="Count.")
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(chance.choice([0.0, 0.001, chance.uniform(0.0, 0.6)]))
                    chance.choice([output.pause, output.resume])()
                truth = heard_s() / WORD_S
                if turn % 3:
                    await session.interrupt()
                output.resume()
                await handle
                kept = "".join(text for text, _ in said(session)[num_kept:])
                if turn % 3:
                    assert abs(words_of(kept) - truth) <= 1.0 and NUMBERS.startswith(kept)
                else:
                    assert kept == NUMBERS
                await asyncio.sleep(0.3)

    run_virtual(talk())


def test_a_tap_on_another_sink_keeps_what_was_heard() -> None:
    async def talk() -> None:
        voice, carrier = voice_of()
        cuts_s = (0.05, *CUTS_S)
        session: AgentSession[None] = AgentSession(
            llm=ScriptedLLM(*[NUMBERS] * len(cuts_s), token_s=0.001),
            tts=voice,
            user_away_timeout=None,
        )
        sink = RealTimeSink()
        session.output.audio = sink
        await session.start(Agent(instructions="Help."))
        playhead.attach(session)
        kept = []
        for cut_s in cuts_s:
            handle = session.generate_reply(user_input="Count.")
            await until(lambda: sink._pushed_s > 0)
            await asyncio.sleep(cut_s)
            await session.interrupt()
            await handle
            kept.append((sink.positions_s[-1] - PRIOR_S["web"]) / WORD_S)
        texts = [text for text, _ in said(session)]
        assert len(texts) == 3
        for text, truth in zip(texts, kept[1:], strict=True):
            assert abs(words_of(text) - max(truth, 0.0)) <= 1.0
        assert {p.state for p in carrier.playbacks} == {"waiting", "playing"}
        await session.aclose()

    run_virtual(talk())


def test_attaching_needs_a_sink_to_watch_or_a_room() -> None:
    async def wire() -> None:
        session: AgentSession[None] = AgentSession()
        with pytest.raises(RuntimeError, match="room="):
            playhead.attach(session)

    run_virtual(wire())

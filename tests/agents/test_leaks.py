"""Nothing is left of many interrupted streams; full counts in tests/bench/plugin.py."""

import asyncio
import random
from urllib.parse import urlsplit

import pytest
from livekit.plugins import playhead

from playhead.engine.messages import Cancel, Done, Pcm, Submit
from tests.agents.conftest import RealEngine
from tests.agents.endurance import cancel, interrupt, take_turns, watch
from tests.agents.fakes import ScriptedLLM, WordSpeaker
from tests.agents.test_history import attached
from tests.agents.virtual import run_virtual
from tests.agents.wire import Relay, serving


@pytest.mark.slow
async def test_interrupts_of_the_real_engine_leave_nothing(real_engine: RealEngine) -> None:
    voice = playhead.TTS(engine=real_engine.client)
    async with watch(lambda: real_engine.engine.metrics.live) as leaks:
        await interrupt(voice, 40)
        await cancel(voice, 20)
        await voice.aclose()
    assert leaks.num == 0 and abs(leaks.rss_mb) < 30, leaks
    assert real_engine.client.num_live == 0
    assert no_audio_of_the_cancelled(real_engine)


def no_audio_of_the_cancelled(real_engine: RealEngine) -> bool:
    """After an utterance ended, nothing of it comes."""
    over: set[str] = set()
    for result in real_engine.carrier.results:
        if isinstance(result, Pcm) and result.request_id in over:
            return False
        if isinstance(result, Done):
            over.add(result.request_id)
    return True


@pytest.mark.slow
async def test_many_turns_interrupts_and_cancels_over_one_connection() -> None:
    async with serving() as engine:
        port = urlsplit(engine.url).port
        assert port is not None
        async with Relay(port) as relay:
            engine.play(WordSpeaker())
            voice = playhead.TTS(base_url=relay.url)
            async with watch(lambda: engine.client.num_live) as leaks:
                await take_turns(voice, 30)
                await interrupt(voice, 8)
                await cancel(voice, 20)
                assert relay.num_links == 1
                await voice.aclose()
            assert leaks.num == 0 and abs(leaks.rss_mb) < 30, leaks


@pytest.mark.slow
def test_five_hundred_interruptions_of_a_session_leave_nothing() -> None:
    chance = random.Random(11)

    async def talk() -> None:
        replies = ["one two three four five six seven"] * 500
        async with attached(ScriptedLLM(*replies), captions=False) as (session, _, output):
            carrier = session.tts._engine._made()._carrier  # type: ignore[union-attr]
            tasks = len(asyncio.all_tasks())
            for _ in range(500):
                handle = session.generate_reply(user_input="Count.")
                await asyncio.sleep(chance.choice([0.0, chance.uniform(0.0, 3.0)]))
                await session.interrupt()
                await handle
            await asyncio.sleep(1.0)
            assert len(asyncio.all_tasks()) <= tasks and not output._segments
            ended = len(carrier.of(Cancel))
            assert len(carrier.of(Submit)) > 200 and ended <= len(carrier.of(Submit))

    run_virtual(talk())

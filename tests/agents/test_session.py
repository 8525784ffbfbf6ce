"""The plugin inside an AgentSession without a room: turns, captions, history, interruption."""

import pytest
from livekit.agents import ErrorEvent
from livekit.agents.metrics import TTSMetrics

from playhead.engine.messages import Append, Cancel, Close, Submit
from tests.agents.conftest import MakeTts
from tests.agents.fakes import (
    ScriptedLLM,
    WordSpeaker,
    frame_pcm,
    said,
    samples_of,
    session_of,
    until,
)
from tests.agents.test_retries import Attempts, fail

pytestmark = pytest.mark.slow

REPLY = "Take the second left after the bridge."
NUM_WORDS = 7


async def test_turns_are_spoken_whole_and_enter_the_history(make_tts: MakeTts) -> None:
    voice, carrier = make_tts(WordSpeaker(), aligned_transcript=True)
    events: list[TTSMetrics] = []
    voice.on("metrics_collected", events.append)
    async with session_of(voice, ScriptedLLM(*[REPLY] * 5)) as (session, sink):
        for turn in range(5):
            await session.generate_reply(user_input="Where?")
            assert samples_of(sink.frames) == b"".join(map(frame_pcm, range(NUM_WORDS)))
            assert len(carrier.of(Submit)) == len(carrier.of(Close)) == turn + 1
        assert said(session) == [(REPLY, False)] * 5
    assert len(events) == 5 and all(e.speech_id for e in events)
    pieces = [c.text for c in carrier.sent if isinstance(c, Submit | Append)]
    assert "".join(pieces) == REPLY * 5
    assert len(pieces) > 5 * NUM_WORDS  # the framework's markdown filter joins a few tokens


async def test_a_fixed_text_is_said(make_tts: MakeTts) -> None:
    voice, _ = make_tts(WordSpeaker(), aligned_transcript=True)
    async with session_of(voice, ScriptedLLM()) as (session, sink):
        await session.say(REPLY)
        assert samples_of(sink.frames) == b"".join(map(frame_pcm, range(NUM_WORDS)))
        assert said(session) == [(REPLY, False)]


async def test_an_interruption_drops_the_request_and_the_next_turn_works(
    make_tts: MakeTts,
) -> None:
    voice, carrier = make_tts(WordSpeaker(), aligned_transcript=True)
    model = ScriptedLLM("word " * 500, REPLY, token_s=0.01)
    async with session_of(voice, model) as (session, sink):
        handle = session.generate_reply(user_input="Where?")
        await until(lambda: sink.num_samples > 0)
        await session.interrupt()
        await handle
        (submit,) = carrier.of(Submit)
        assert [c.request_id for c in carrier.of(Cancel)] == [submit.request_id]
        num_sent = len(carrier.sent)
        await session.generate_reply(user_input="And now?")
        assert isinstance(carrier.sent[num_sent], Submit)
        assert samples_of(sink.frames) == b"".join(map(frame_pcm, range(NUM_WORDS)))
        assert said(session)[-1] == (REPLY, False)
        assert len(carrier.of(Cancel)) == 1


async def test_a_turn_without_words_leaves_the_session_alive(make_tts: MakeTts) -> None:
    voice, carrier = make_tts(WordSpeaker(), aligned_transcript=True)
    errors: list[object] = []
    async with session_of(voice, ScriptedLLM(" ", REPLY)) as (session, _):
        session.on("error", errors.append)
        await session.generate_reply(user_input="Nothing, please.")
        assert carrier.of(Submit) == []
        await session.generate_reply(user_input="Where?")
        assert len(carrier.of(Submit)) == 1 and errors == []


@pytest.mark.parametrize("frames", [0, 3], ids=["before audio", "in mid speech"])
async def test_an_engine_that_fails_is_one_clear_error_and_the_session_lives(
    any_tts: MakeTts, frames: int
) -> None:
    voice, _carrier = any_tts(Attempts(*[fail(frames)] * (1 if frames else 4), WordSpeaker()))
    errors: list[ErrorEvent] = []
    async with session_of(voice, ScriptedLLM(REPLY, REPLY)) as (session, sink):
        session.on("error", errors.append)
        await session.generate_reply(user_input="Where?")
        final = [event for event in errors if not event.error.recoverable]
        assert len(final) == 1 and len(errors) == (1 if frames else 4)
        assert "failed" in str(final[0].error.error)
        await session.generate_reply(user_input="And now?")
        assert samples_of(sink.frames) == b"".join(map(frame_pcm, range(NUM_WORDS)))
        assert said(session)[-1] == (REPLY, False)
        assert len(errors) == (1 if frames else 4)

"""The plugin with the real engine and its embedded voice; exact words come from stored codes."""

from functools import partial

import numpy as np
import pytest
from livekit.agents import APIConnectOptions, APIStatusError, tts
from livekit.agents.metrics import TTSMetrics
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import playhead

from playhead.engine.messages import Cancel, Close, Command, Submit
from playhead.engine.units import FRAME_S, SAMPLE_RATE_HZ
from tests.agents.conftest import RealEngine
from tests.agents.fakes import (
    ScriptedLLM,
    said,
    samples_of,
    session_of,
    tokens,
    until,
)
from tests.engine.driver import recording

pytestmark = pytest.mark.slow

TEXT = "Take the second left after the bridge."
MOST_FRAMES_BEHIND_A_CANCEL = 2
HELD_BACK_S = 0.0101
"""Of what was pushed, the framework keeps 10 ms to mark the last frame."""
PATIENT = APIConnectOptions(max_retry=0, timeout=60)


def has_submitted(real_engine: RealEngine, num_requests: int) -> bool:
    return len(real_engine.carrier.of(Submit)) == num_requests


async def test_first_audio_comes_before_the_text_ends(real_engine: RealEngine) -> None:
    voice = playhead.TTS(engine=real_engine.client)
    async with voice.stream(conn_options=PATIENT) as stream:
        for token in tokens(TEXT)[:6]:
            stream.push_text(token)
        first = await anext(aiter(stream))
        assert not real_engine.carrier.of(Close)
        for token in tokens(TEXT)[6:]:
            stream.push_text(token)
        stream.end_input()
        audio = [first, *[a async for a in stream]]
    assert samples_of([a.frame for a in audio])[: len(real_engine.carrier.pcm())] == (
        real_engine.carrier.pcm()
    )
    assert [a.is_final for a in audio] == [False] * (len(audio) - 1) + [True]
    await until(real_engine.idle)


async def test_stream_and_synthesize_say_the_same(real_engine: RealEngine) -> None:
    voice = playhead.TTS(engine=real_engine.client, seed=7)
    text = "Take the second left."
    events: list[TTSMetrics] = []
    voice.on("metrics_collected", events.append)
    async with voice.synthesize(text, conn_options=PATIENT) as chunked:
        whole = samples_of([a.frame async for a in chunked])
    assert whole == real_engine.carrier.pcm()
    async with voice.stream(conn_options=PATIENT) as stream:
        for token in tokens(text):
            stream.push_text(token)
        stream.end_input()
        streamed = samples_of([a.frame async for a in stream])
    samples = np.frombuffer(streamed[: len(whole)], "<i2").astype(np.int32)
    apart = np.abs(samples - np.frombuffer(whole, "<i2"))
    assert apart.max() <= 4  # other chunks, so the codec's float32 sums differ in their order
    assert [event.streamed for event in events] == [False, True]
    assert events[0].output_tokens == events[1].output_tokens > 0


async def test_fifty_cancels_leave_nothing_behind(real_engine: RealEngine) -> None:
    voice = playhead.TTS(engine=real_engine.client)
    metrics = real_engine.engine.metrics
    cancelled = metrics.cancelled
    frames_at_cancel: list[int] = []
    real_engine.carrier.on_send = lambda command: (
        frames_at_cancel.append(metrics.frame_rows) if isinstance(command, Cancel) else None
    )
    for number in range(50):
        stream = voice.stream(conn_options=PATIENT)
        stream.push_text(TEXT)
        if number % 2:
            stream.end_input()
        if number % 5 == 0:
            await anext(aiter(stream))
        else:
            await until(partial(has_submitted, real_engine, number + 1))
        num_cancels = len(frames_at_cancel)
        await stream.aclose()
        await until(real_engine.idle)
        for frames in frames_at_cancel[num_cancels:]:
            assert metrics.frame_rows - frames <= MOST_FRAMES_BEHIND_A_CANCEL
    assert len(real_engine.carrier.of(Submit)) == 50 and len(frames_at_cancel) > 25
    assert metrics.cancelled - cancelled == len(real_engine.carrier.of(Cancel))
    assert metrics.live == 0 and real_engine.client.num_live == 0


async def test_words_of_a_recording_come_with_their_audio(real_engine: RealEngine) -> None:
    stored = recording("meeting")
    real_engine.carrier.recording = stored
    voice = playhead.TTS(engine=real_engine.client)
    text = "".join(word.text for word in stored.words)
    async with voice.stream(conn_options=PATIENT) as stream:
        for token in tokens(text):
            stream.push_text(token)
        stream.end_input()
        audio = [a async for a in stream]
    samples = samples_of([a.frame for a in audio])
    assert samples[: len(real_engine.carrier.pcm())] == real_engine.carrier.pcm()
    words = [w for a in audio for w in a.frame.userdata[USERDATA_TIMED_TRANSCRIPT]]
    assert "".join(words) == text
    sent_s = 0.0
    for a in audio:
        for word in a.frame.userdata[USERDATA_TIMED_TRANSCRIPT]:
            assert sent_s - HELD_BACK_S <= word.start_time <= sent_s + FRAME_S + HELD_BACK_S
        sent_s += a.frame.duration
    leads = [
        w.start_s - t.start_time for w, t in zip(stored.words, words, strict=True) if t.start_time
    ]
    assert max(leads) - min(leads) < 1 / SAMPLE_RATE_HZ  # one shift: the trimmed lead
    assert voice.capabilities.aligned_transcript


@pytest.mark.parametrize(
    ("options", "message"),
    [({"voice": "nobody"}, "nobody"), ({"language": "klingon"}, "klingon")],
    ids=["voice", "language"],
)
async def test_what_the_model_lacks_is_refused_by_name(
    real_engine: RealEngine, options: dict[str, str], message: str
) -> None:
    voice = playhead.TTS(engine=real_engine.client, **options)  # type: ignore[arg-type]
    events: list[tts.TTSError] = []
    voice.on("error", events.append)
    with pytest.raises(APIStatusError, match=message) as raised:
        await voice.synthesize(TEXT).collect()
    assert raised.value.status_code == 400
    assert [event.recoverable for event in events] == [False]


@pytest.mark.parametrize(
    "text", ["...", "—", "\U0001f642", "**"], ids=["dots", "dash", "emoji", "bold"]
)
async def test_text_without_words_is_a_little_silence(real_engine: RealEngine, text: str) -> None:
    voice = playhead.TTS(engine=real_engine.client)
    events: list[tts.TTSError] = []
    voice.on("error", events.append)
    async with voice.stream(conn_options=PATIENT) as stream:
        stream.push_text(text)
        stream.end_input()
        audio = [a async for a in stream]
    assert 0.01 <= sum(a.frame.duration for a in audio) < 1.0 and events == []


async def test_an_interrupted_session_stops_generation_within_a_step(
    real_engine: RealEngine,
) -> None:
    metrics = real_engine.engine.metrics
    frames_at_cancel: list[int] = []

    def note(command: Command) -> None:
        if isinstance(command, Cancel):
            frames_at_cancel.append(metrics.frame_rows)

    real_engine.carrier.on_send = note
    reply = "Then stop and wait there."
    model = ScriptedLLM("Take the second left after the bridge. " * 20, reply, token_s=0.01)
    voice = playhead.TTS(engine=real_engine.client)
    async with session_of(voice, model) as (session, sink):
        handle = session.generate_reply(user_input="Where?")
        await until(lambda: sink.num_samples > 0)
        await session.interrupt()
        await handle
        await until(real_engine.idle)
        assert len(frames_at_cancel) == 1
        assert metrics.frame_rows - frames_at_cancel[0] <= 1
        num_old = len(real_engine.carrier.results)
        await session.generate_reply(user_input="And now?")
        first, second = real_engine.carrier.of(Submit)
        new = real_engine.carrier.results[num_old:]
        assert {result.request_id for result in new} == {second.request_id} != {first.request_id}
        assert sink.num_samples >= SAMPLE_RATE_HZ * FRAME_S
        assert said(session)[-1] == (reply, False)


async def test_first_stream_of_a_ready_exact_voice_is_aligned(real_engine: RealEngine) -> None:
    speaker = playhead.TTS(engine=real_engine.client)
    await speaker.list_voices()
    assert not speaker.capabilities.aligned_transcript
    stream = speaker.stream()
    assert speaker.capabilities.aligned_transcript
    await stream.aclose()
    quiet = playhead.TTS(engine=real_engine.client, aligned_transcript=False)
    await quiet.list_voices()
    await quiet.stream().aclose()
    assert not quiet.capabilities.aligned_transcript

"""Streams against a scripted engine: what it is sent, what comes out, and in which order."""

import asyncio
from collections.abc import Iterable

import pytest
from livekit.agents import APIConnectOptions, tts
from livekit.agents.metrics import TTSMetrics
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import playhead

from playhead.engine.messages import (
    Accepted,
    Append,
    Cancel,
    Close,
    Command,
    Done,
    Pcm,
    Result,
    Submit,
    Word,
    Words,
)
from playhead.engine.units import FRAME_S, FRAME_SAMPLES, SAMPLE_RATE_HZ
from tests.agents.conftest import MakeTts
from tests.agents.fakes import WordSpeaker, frame_pcm, samples_of, silent, tokens

TEXT = "Take the second left and stop."
WORDS = [word + " " for word in TEXT.split(" ")[:-1]] + ["stop."]


async def speak(
    voice: playhead.TTS, pieces: Iterable[str], end: bool = True
) -> list[tts.SynthesizedAudio]:
    async with voice.stream(conn_options=APIConnectOptions(max_retry=0)) as stream:
        for piece in pieces:
            stream.push_text(piece)
        if end:
            stream.end_input()
        else:
            stream.flush()
        return [audio async for audio in stream]


def timed(audio: Iterable[tts.SynthesizedAudio]) -> list[str]:
    return [w for a in audio for w in a.frame.userdata[USERDATA_TIMED_TRANSCRIPT]]


async def test_stream_sends_each_token_when_it_is_pushed(make_tts: MakeTts) -> None:
    voice, carrier = make_tts(WordSpeaker())
    await speak(voice, tokens(TEXT))
    first, *rest = carrier.sent
    assert isinstance(first, Submit) and first.text == TEXT[:4] and not first.closed and first.live
    assert isinstance(rest.pop(), Close)
    assert all(isinstance(command, Append) for command in rest)
    assert [first.text, *(c.text for c in carrier.of(Append))] == tokens(TEXT)


async def test_first_audio_comes_while_text_is_open(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(WordSpeaker())
    async with voice.stream() as stream:
        stream.push_text("Take the ")
        audio = await anext(aiter(stream))
        assert audio.frame.samples_per_channel > 0
        assert not carrier.of(Close)


async def test_samples_are_the_engines_bit_for_bit(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker())
    audio = await speak(voice, tokens(TEXT))
    assert samples_of([a.frame for a in audio]) == b"".join(map(frame_pcm, range(len(WORDS))))


async def test_frames_keep_the_frameworks_rules(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker())
    audio = await speak(voice, [TEXT])
    assert [a.is_final for a in audio] == [False] * (len(audio) - 1) + [True]
    assert len({a.request_id for a in audio}) == 1 and audio[0].request_id
    assert len({a.segment_id for a in audio}) == 1 and audio[0].segment_id
    assert all(0 < a.frame.duration < 0.25 for a in audio)
    assert {(a.frame.sample_rate, a.frame.num_channels) for a in audio} == {(SAMPLE_RATE_HZ, 1)}


@pytest.mark.parametrize("end", [True, False], ids=["end_input", "flush"])
async def test_flush_speaks_what_is_pending(any_tts: MakeTts, end: bool) -> None:
    voice, carrier = any_tts(WordSpeaker())
    audio = await speak(voice, [TEXT], end=end)
    assert len(samples_of([a.frame for a in audio])) == len(WORDS) * len(frame_pcm(0))
    assert len(carrier.of(Close)) == 1


@pytest.mark.parametrize("pieces", [[], [""], [" ", "\n"]], ids=["nothing", "empty", "blank"])
async def test_blank_input_asks_nothing_of_the_engine(any_tts: MakeTts, pieces: list[str]) -> None:
    voice, carrier = any_tts(WordSpeaker())
    errors: list[tts.TTSError] = []
    voice.on("error", errors.append)
    assert await speak(voice, pieces) == []
    assert carrier.sent == [] and errors == []


async def test_flush_before_the_text_is_no_end(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker())
    async with voice.stream() as stream:
        stream.flush()
        stream.push_text(TEXT)
        stream.end_input()
        audio = [a async for a in stream]
    assert len(samples_of([a.frame for a in audio])) == len(WORDS) * len(frame_pcm(0))


async def test_text_without_a_sound_gives_a_little_silence(any_tts: MakeTts) -> None:
    def mute(command: Command) -> list[Result]:
        if isinstance(command, Submit):
            return [Accepted(command.request_id)]
        return [Done(command.request_id, "stop", 0, 0)] if isinstance(command, Close) else []

    voice, carrier = any_tts(mute)
    errors: list[tts.TTSError] = []
    voice.on("error", errors.append)
    audio = await speak(voice, ["..."])
    assert samples_of([a.frame for a in audio]).strip(b"\0") == b""
    assert sum(a.frame.duration for a in audio) >= 0.01
    assert len(carrier.of(Submit)) == 1 and errors == []


async def test_one_metrics_event_a_stream(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker())
    events: list[TTSMetrics] = []
    voice.on("metrics_collected", events.append)
    for _ in range(3):
        await speak(voice, tokens(TEXT))
    assert len(events) == 3
    for event in events:
        assert event.characters_count == len(TEXT)
        assert event.output_tokens == len(WORDS)
        assert event.audio_duration == pytest.approx(len(WORDS) * 0.08)
        assert event.metadata is not None
        assert event.metadata.model_provider == "playhead" and not event.cancelled
    assert len({event.request_id for event in events}) == 3


async def test_exact_words_come_with_their_audio_and_join_to_the_text(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker())
    audio = await speak(voice, [" ", *tokens(TEXT)])
    assert "".join(timed(audio)) == " " + TEXT
    sent_s = 0.0
    for a in audio:
        for word in a.frame.userdata[USERDATA_TIMED_TRANSCRIPT]:  # 10 ms mark the last frame
            assert sent_s - 0.0101 <= word.start_time <= sent_s + FRAME_S + 0.0101
        sent_s += a.frame.duration


async def test_words_known_long_before_they_sound_come_with_the_frame_they_begin_in(
    make_tts: MakeTts,
) -> None:
    starts_s = [number * 0.1 for number in range(12)]

    def at_once(command: Command) -> list[Result]:
        if not isinstance(command, Submit):
            return []
        name = command.request_id
        words = tuple(Word(f"w{at:.1f} ", at, at + 0.1) for at in starts_s)
        audio = b"".join(map(frame_pcm, range(15)))
        done = Done(name, "stop", 15 * FRAME_SAMPLES, 15)
        return [Accepted(name), Words(name, words, False), Pcm(name, 0, audio, 15), done]

    voice, _ = make_tts(at_once)
    sent_s, told = 0.0, 0
    for each in await speak(voice, [TEXT]):
        for word in each.frame.userdata[USERDATA_TIMED_TRANSCRIPT]:
            assert sent_s - 0.0101 <= word.start_time <= sent_s + FRAME_S + 0.0101
            told += 1
        sent_s += each.frame.duration
    assert told == len(starts_s)


async def test_estimated_words_come_only_when_asked_for(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker(estimated=True))
    assert timed(await speak(voice, [TEXT])) == []
    assert not voice.capabilities.aligned_transcript
    asked, _ = any_tts(WordSpeaker(estimated=True), aligned_transcript=True)
    assert asked.capabilities.aligned_transcript
    assert timed(await speak(asked, [TEXT])) == WORDS


async def test_capability_follows_the_engines_words(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker())
    await speak(voice, [TEXT])
    assert voice.capabilities.aligned_transcript
    refused, _ = any_tts(WordSpeaker(), aligned_transcript=False)
    await speak(refused, [TEXT])
    assert not refused.capabilities.aligned_transcript


async def test_options_are_frozen_when_the_stream_opens(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(WordSpeaker(), voice="ada", temperature=0.5, seed=3)
    stream = voice.stream()
    voice.update_options(voice="bo", language="english", instructions="calm", top_k=8)
    async with stream:
        stream.push_text(TEXT)
        stream.end_input()
        async for _ in stream:
            pass
    await speak(voice, [TEXT])
    first, second = carrier.of(Submit)
    assert (first.voice, first.language, first.instruct) == ("ada", "auto", None)
    assert (second.voice, second.language, second.instruct) == ("bo", "english", "calm")
    assert (first.sampling.top_k, second.sampling.top_k) == (None, 8)
    assert first.sampling.temperature == second.sampling.temperature == 0.5
    assert first.seed == second.seed == 3


async def test_synthesize_is_one_complete_request_without_a_listener(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(WordSpeaker())
    events: list[TTSMetrics] = []
    voice.on("metrics_collected", events.append)
    async with voice.synthesize(TEXT) as stream:
        audio = [a async for a in stream]
    assert samples_of([a.frame for a in audio]) == b"".join(map(frame_pcm, range(len(WORDS))))
    assert "".join(timed(audio)) == TEXT
    (submit,) = carrier.of(Submit)
    assert not submit.live
    assert submit.closed or len(carrier.of(Close)) == 1
    assert submit.text + "".join(more.text for more in carrier.of(Append)) == TEXT
    assert len(events) == 1 and events[0].output_tokens == len(WORDS)


async def test_cancel_drops_the_request_once_and_late_audio_with_it(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(silent)
    for number in range(50):
        stream = voice.stream()
        stream.push_text(TEXT)
        while len(carrier.of(Submit)) <= number:
            await asyncio.sleep(0)
        await stream.aclose()
        await stream.aclose()
    submitted = [c.request_id for c in carrier.of(Submit)]
    assert [c.request_id for c in carrier.of(Cancel)] == submitted
    assert len(set(submitted)) == 50


async def test_cancel_is_not_swallowed(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(silent)
    stream = voice.stream()
    stream.push_text(TEXT)
    while not carrier.of(Submit):
        await asyncio.sleep(0)
    await stream.aclose()
    assert stream._task.cancelled()


async def test_aclose_ends_open_streams_and_leaves_the_engine(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(silent)
    speaking, waiting, whole = voice.stream(), voice.stream(), voice.synthesize(TEXT)
    speaking.push_text(TEXT)
    while len(carrier.of(Submit)) < 2:
        await asyncio.sleep(0)
    await voice.aclose()
    assert len(carrier.of(Cancel)) == 2
    assert [a async for a in waiting] == []
    assert speaking._task.done() and whole.done
    assert carrier.running


async def test_list_voices_names_those_of_the_engine(any_tts: MakeTts) -> None:
    voice, _ = any_tts(WordSpeaker())
    voices = await voice.list_voices()
    assert [v.name for v in voices] == ["ada", "bo"]
    assert voices[0].languages == ("english",)


def test_model_and_engine_exclude_each_other() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        playhead.TTS(engine="/run/engine.sock", model="some/model")

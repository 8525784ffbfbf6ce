"""What the constructor takes and refuses, and audio at other rates than the engine's."""

from typing import Any

import numpy as np
import pytest
from livekit.agents import APIConnectOptions, Plugin
from livekit.plugins import playhead
from livekit.plugins.playhead.shared_engine import fetch_model, own_engine

from playhead.engine.errors import CheckpointError
from playhead.engine.messages import Accepted, Command, Done, Pcm, Result, Submit
from playhead.engine.units import FRAME_SAMPLES, SAMPLE_RATE_HZ
from tests.agents.conftest import MakeTts
from tests.agents.fakes import WordSpeaker, samples_of, tokens, until

NUM_FRAMES = 25
TONE_HZ = 440.0
ONCE = APIConnectOptions(max_retry=0, timeout=10)
SCRIPTS = {
    "chinese": "你好,我能帮你什么吗?我们今天开门到八点。",
    "japanese": "こんにちは。ご用件をお聞かせください。",
    "hindi": "नमस्ते, मैं आपकी क्या मदद कर सकता हूँ?",
    "arabic": "مرحبا، كيف يمكنني مساعدتك اليوم؟",
    "thai": "สวัสดีครับให้ช่วยอะไรไหมครับ",
    "joined": "one.Two,three;four",
}


def tone(command: Command) -> list[Result]:
    """Answer like an engine that hums for two seconds."""
    if not isinstance(command, Submit):
        return []
    samples = np.arange(NUM_FRAMES * FRAME_SAMPLES)
    wave = np.sin(2 * np.pi * TONE_HZ * samples / SAMPLE_RATE_HZ) * 8000
    name = command.request_id
    chunks = np.split(wave.astype("<i2"), NUM_FRAMES)
    sent = [Pcm(name, n * FRAME_SAMPLES, c.tobytes(), 1) for n, c in enumerate(chunks)]
    return [Accepted(name), *sent, Done(name, "stop", len(samples), NUM_FRAMES)]


@pytest.mark.parametrize("chunked", [False, True], ids=["stream", "synthesize"])
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
async def test_audio_has_the_rate_that_was_asked_for(
    make_tts: MakeTts, rate_hz: int, chunked: bool
) -> None:
    voice, _ = make_tts(tone, sample_rate=rate_hz)
    assert voice.sample_rate == rate_hz
    if chunked:
        frames = [audio.frame async for audio in voice.synthesize("hum", conn_options=ONCE)]
    else:
        async with voice.stream(conn_options=ONCE) as stream:
            stream.push_text("hum")
            stream.end_input()
            frames = [audio.frame async for audio in stream]
    assert {frame.sample_rate for frame in frames} == {rate_hz}
    samples = np.frombuffer(samples_of(frames), "<i2").astype(float)
    assert abs(len(samples) / rate_hz - NUM_FRAMES * 0.08) < 0.010
    assert abs(frequency_hz(samples, rate_hz) / TONE_HZ - 1) < 0.001


def frequency_hz(samples: np.ndarray, rate_hz: int) -> float:
    """Measure a tone by the phase it gains from the first half second to the last."""
    half = rate_hz // 2
    turn = np.exp(-2j * np.pi * TONE_HZ * np.arange(len(samples)) / rate_hz)
    window = np.hanning(half)
    first = np.angle(np.sum(samples[:half] * turn[:half] * window))
    last = np.angle(np.sum(samples[-half:] * turn[-half:] * window))
    apart_s = (len(samples) - half) / rate_hz
    gained = (last - first + np.pi) % (2 * np.pi) - np.pi
    return float(TONE_HZ + gained / (2 * np.pi * apart_s))


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_text_without_spaces_reaches_the_engine_as_it_is_written(
    make_tts: MakeTts, text: str
) -> None:
    voice, carrier = make_tts(WordSpeaker())
    async with voice.stream(conn_options=ONCE) as stream:
        for number, token in enumerate(tokens(text)):
            stream.push_text(token)
            await until(lambda at=number: len(carrier.sent) > at)  # type: ignore[misc]
        assert "".join(command.text for command in carrier.sent) == text
        stream.end_input()
        async for _ in stream:
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample_rate": 7_999}, "8000 to 48000"),
        ({"sample_rate": 48_001}, "8000 to 48000"),
        ({"sample_rate": "24000"}, "'24000', allowed is 8000"),
        ({"sample_rate": 24000.0}, "24000.0, allowed is 8000"),
        ({"speed": 1.2}, "speed is 1.2, allowed is 1.0"),
        ({"speed": "fast"}, "speed is 'fast', allowed is 1.0"),
        ({"engine": 5}, "engine is 5; give a started client or a socket path"),
        ({"base_url": "http://a:99999"}, "base_url is 'http://a:99999'"),
        ({"base_url": 5}, "base_url is 5"),
        ({"voice": 5}, "voice: got int, allowed: string"),
        ({"language": ["de"]}, "language: got list, allowed: string"),
        ({"instructions": 5}, "instructions: got int"),
        ({"temperature": "hot"}, "temperature: got str, allowed: number"),
        ({"temperature": -1}, "temperature is -1, allowed is 0 to 10"),
        ({"temperature": float("nan")}, "temperature is nan, allowed are numbers"),
        ({"top_k": 2.5}, "top_k: got float, allowed: integer"),
        ({"top_p": 1.5}, "top_p is 1.5, allowed is 0 to 1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0, allowed is 0.01"),
        ({"seed": -1}, "seed is -1, allowed is 0 to"),
        ({"seed": 1.5}, "seed: got float"),
        ({"normalize": "off"}, "normalize: got str, allowed: boolean"),
        ({"pronunciations": ["SQL"]}, "pronunciations: got list, allowed: a mapping"),
        ({"pronunciations": {"SQL": 5}}, "pronunciations: got int, allowed: string"),
        ({"pronunciations": {"": "x"}}, "the word of '' has 0 characters"),
        ({"pronunciations": {"Nguyen": "/5/"}}, "'Nguyen' has '5', allowed are words of"),
        ({"pronunciations": {str(n): "x" for n in range(201)}}, "201 entries, most are 200"),
        ({"base_url": "http://a", "engine": "/run/b"}, "give one of them"),
        ({"base_url": "http://a", "model": "b"}, "give one of them"),
        ({"engine": "/run/a", "profile": "cpu"}, "give one of them"),
    ],
)
def test_what_can_not_be_is_refused_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        playhead.TTS(**options)  # type: ignore[arg-type]


async def test_how_words_are_read_goes_to_the_engine(any_tts: MakeTts) -> None:
    voice, carrier = any_tts(tone, pronunciations={"SQL": "sequel"}, normalize=False)
    await voice.synthesize("hum", conn_options=ONCE).collect()
    voice.update_options(normalize=True, pronunciations={})
    await voice.synthesize("hum", conn_options=ONCE).collect()
    first, second = carrier.of(Submit)
    assert (first.pronunciations, first.normalize) == ((("SQL", "sequel"),), False)
    assert (second.pronunciations, second.normalize) == ((), True)


async def test_an_option_that_is_refused_changes_nothing_and_none_is_the_default(
    make_tts: MakeTts,
) -> None:
    """A wrong type never reaches the engine, which would end with it, and so all other calls."""
    voice, carrier = make_tts(tone, voice="ada", top_k=8, pronunciations={" SQL ": "sequel"})
    with pytest.raises(ValueError, match="language: got int"):
        voice.update_options(voice="bo", language=5)  # type: ignore[arg-type]
    await voice.synthesize("hum", conn_options=ONCE).collect()
    voice.update_options(voice=None, language="de-AT", top_k=None, pronunciations=None, seed=None)
    await voice.synthesize("hum", conn_options=ONCE).collect()
    first, second = carrier.of(Submit)
    assert (first.voice, first.language, first.sampling.top_k) == ("ada", "auto", 8)
    assert first.pronunciations == (("SQL", "sequel"),)
    assert (second.voice, second.language, second.sampling.top_k) == (None, "german", None)
    assert (second.pronunciations, second.seed) == ((), 0)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        *(("en", "english"), ("pt-BR", "portuguese"), ("zh_CN", "chinese"), ("ja", "japanese")),
        *(("German", "German"), ("auto", "auto"), ("it", "italian"), ("xx", "xx")),
    ],
)
async def test_a_language_may_be_named_by_its_code(
    make_tts: MakeTts, given: str, named: str
) -> None:
    voice, carrier = make_tts(tone, language=given)
    await voice.synthesize("hum", conn_options=ONCE).collect()
    assert carrier.of(Submit)[0].language == named


def test_what_the_environment_lacks_may_be_passed_on() -> None:
    nothing: dict[str, Any] = dict.fromkeys(
        "voice language engine base_url api_key model profile speed aligned_transcript".split()
    )
    assert playhead.TTS(**nothing).model == "embedded"


def test_what_changes_nothing_is_taken() -> None:
    voice = playhead.TTS(speed=1.0, pronunciations={}, normalize=True, sample_rate=24_000)
    assert (voice.provider, voice.model) == ("playhead", "embedded")


def test_the_environment_names_the_own_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYHEAD_MODEL", "owner/model")
    voice = playhead.TTS()
    assert voice.model == "owner/model"
    assert voice._engine is own_engine("owner/model", "cpu")


def test_download_files_fetches_what_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (plugin,) = [p for p in Plugin.registered_plugins if p.title == "livekit.plugins.playhead"]
    plugin.download_files()
    monkeypatch.setenv("PLAYHEAD_MODEL", "no-such-folder")
    with pytest.raises(CheckpointError, match="no-such-folder"):
        plugin.download_files()
    fetch_model("embedded")

"""OpenAI's own client, and LiveKit Agents' plugin for it, against our HTTP service."""

import io
from collections.abc import Callable

import av
import numpy as np
import openai as openai_client
import pytest
import pytest_asyncio
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.agents.metrics import TTSMetrics
from livekit.plugins import openai

from playhead.engine.units import SAMPLE_RATE_HZ
from tests.worker.http.conftest import SHORT, VOICE, Served, launcher, open_server

__all__ = ["launcher", "open_server"]  # fixtures
pytestmark = pytest.mark.slow

ONCE = APIConnectOptions(max_retry=0, timeout=60)
FORMATS = ("mp3", "wav", "flac", "aac", "opus", "pcm")
LEAST_S, MOST_S = 0.3, 5.0
"""Of a greeting of two words."""
Plugin = Callable[..., openai.TTS]


@pytest_asyncio.fixture
async def plugin(open_server: Served) -> Plugin:
    def make(model: str = "tts-1", voice: str = "nova", **options: str) -> openai.TTS:
        url = f"{open_server.url}/v1"
        return openai.TTS(model=model, voice=voice, base_url=url, api_key="unused", **options)

    return make


@pytest.mark.parametrize("model", ["tts-1", "tts-1-hd", "gpt-4o-mini-tts"])
@pytest.mark.parametrize("response_format", FORMATS)
async def test_the_plugin_speaks_in_every_format(
    plugin: Plugin, model: str, response_format: str
) -> None:
    voice = plugin(model, response_format=response_format)
    events: list[TTSMetrics] = []
    voice.on("metrics_collected", events.append)
    async with voice.synthesize(SHORT, conn_options=ONCE) as stream:
        audio = [each async for each in stream]
    assert LEAST_S < sum(each.frame.duration for each in audio) < MOST_S
    assert {each.frame.sample_rate for each in audio} == {SAMPLE_RATE_HZ}
    (request_id,) = {each.request_id for each in audio}
    assert request_id.startswith("req-")
    assert np.abs(np.concatenate([np.frombuffer(a.frame.data, "<i2") for a in audio])).max() > 600
    assert len(events) == 1
    if model == "gpt-4o-mini-tts":  # asks for events, which carry the usage
        assert events[0].output_tokens > 0
    await voice.aclose()


@pytest.mark.parametrize("voice", ["alloy", "shimmer", VOICE])
async def test_the_plugin_may_name_openais_voices_and_ours(plugin: Plugin, voice: str) -> None:
    frame = await plugin(voice=voice).synthesize(SHORT, conn_options=ONCE).collect()
    assert frame.duration > LEAST_S


async def test_an_unknown_voice_is_refused_once(plugin: Plugin) -> None:
    voice = plugin(voice="nobody")
    events: list[object] = []
    voice.on("error", events.append)
    options = APIConnectOptions(max_retry=3, retry_interval=0.01, timeout=60)
    with pytest.raises(APIStatusError, match="no such voice") as raised:
        await voice.synthesize(SHORT, conn_options=options).collect()
    assert raised.value.status_code == 400 and len(events) == 1


@pytest.mark.parametrize("response_format", FORMATS)
def test_openais_client_writes_every_format(open_server: Served, response_format: str) -> None:
    with openai_client.OpenAI(base_url=f"{open_server.url}/v1", api_key="unused") as client:
        answer = client.audio.speech.create(
            model="tts-1",
            voice="nova",
            input=SHORT,
            response_format=response_format,  # type: ignore[arg-type]
        )
        data = answer.read()
    if response_format == "pcm":
        duration_s = len(data) / 2 / SAMPLE_RATE_HZ
    else:
        with av.open(io.BytesIO(data)) as container:
            frames = list(container.decode(audio=0))
        duration_s = sum(frame.samples / frame.sample_rate for frame in frames)
    assert LEAST_S < duration_s < MOST_S


def test_openais_client_streams(open_server: Served) -> None:
    client = openai_client.OpenAI(base_url=f"{open_server.url}/v1", api_key="unused")
    create = client.audio.speech.with_streaming_response.create
    with client, create(model="tts-1", voice="nova", input=SHORT, response_format="pcm") as answer:
        chunks = [chunk for chunk in answer.iter_bytes(4_096) if chunk]
    assert len(chunks) > 1 and LEAST_S < sum(map(len, chunks)) / 2 / SAMPLE_RATE_HZ < MOST_S


def test_openais_client_lists_models_and_names_errors(open_server: Served) -> None:
    with openai_client.OpenAI(base_url=f"{open_server.url}/v1", api_key="unused") as client:
        assert "tts-1" in [model.id for model in client.models.list()]
        with pytest.raises(openai_client.BadRequestError, match="no such voice"):
            client.audio.speech.create(model="tts-1", voice="nobody", input=SHORT)
        with pytest.raises(openai_client.NotFoundError, match="no such model"):
            client.audio.speech.create(model="whisper-1", voice="nova", input=SHORT)

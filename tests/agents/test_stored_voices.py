"""Cloned voices by name through the plugin: an engine of this process, and one behind a server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
import pytest_asyncio
import torch
from aiohttp.test_utils import TestServer
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.plugins import playhead
from numpy.typing import NDArray

from playhead.engine.models.loader import load_model
from playhead.engine.models.synthetic import write_checkpoint
from playhead.engine.voice_store import LOCAL_OWNER, VoiceStore
from playhead.worker.client import EngineClient
from playhead.worker.http.options import HttpOptions
from playhead.worker.http.routes import build_app
from playhead.worker.http.service import Service
from playhead.worker.thread_carrier import ThreadCarrier, engine_maker
from tests.agents.fakes import samples_of, until
from tests.engine.clone_speaker import keep
from tests.voices import TRANSCRIPT

pytestmark = pytest.mark.slow

ONCE = APIConnectOptions(max_retry=0, timeout=60)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    """Run a base checkpoint whose machine stores a voice by its vector and one in context."""
    home = tmp_path_factory.mktemp("home")
    folder = write_checkpoint(home / "model", "tiny-base", dtype=torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        model, store = load_model(folder), VoiceStore()
        keep(store, LOCAL_OWNER, "vector", model, 1)
        keep(store, LOCAL_OWNER, "context", model, 1, TRANSCRIPT)
        client = EngineClient(ThreadCarrier(engine_maker(str(folder), "cpu")))
        client.start()
        yield client
        client.close()


@pytest_asyncio.fixture
async def url(engine: EngineClient) -> AsyncIterator[str]:
    """Serve the engine to this machine."""
    service = Service(engine, HttpOptions())
    async with TestServer(build_app(service), handler_cancellation=True) as server:
        warm = asyncio.create_task(service.keep_warm())
        await until(lambda: service.ready)
        yield f"http://127.0.0.1:{server.port}"
        warm.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await warm


async def first_samples(voice: playhead.TTS) -> NDArray[np.int16]:
    """Return half a second of a sentence that comes in two pieces."""
    async with voice.stream(conn_options=ONCE) as stream:
        stream.push_text("Hello wor")
        stream.push_text("ld.")
        stream.end_input()
        heard = b""
        async for audio in stream:
            heard += samples_of([audio.frame])
            if len(heard) > 24_000:
                return np.frombuffer(heard[:24_000], "<i2")
    raise AssertionError(f"only {len(heard)} bytes came")


async def test_voices_when_named_in_process_and_remotely(engine: EngineClient, url: str) -> None:
    made: dict[str, NDArray[np.int16]] = {}
    for name in ("vector", "context"):
        here = playhead.TTS(engine=engine, voice=name, seed=3)
        there = playhead.TTS(base_url=url, voice=name, seed=3)
        made[name] = await first_samples(here)
        apart = made[name].astype(int) - await first_samples(there)
        assert np.abs(apart).max() <= 2, "other chunks round otherwise, no more"
        for place in (here, there):
            assert [each.name for each in await place.list_voices()] == ["context", "vector"]
        await there.aclose()
    assert np.abs(made["vector"].astype(int) - made["context"]).max() > 1_000


async def test_voice_when_it_is_not_stored(engine: EngineClient, url: str) -> None:
    for voice in (
        playhead.TTS(engine=engine, voice="nobody"),
        playhead.TTS(base_url=url, voice="nobody"),
    ):
        with pytest.raises(APIStatusError, match="voice") as caught:
            await first_samples(voice)
        assert caught.value.status_code == 400 and not caught.value.retryable
        await voice.aclose()

"""Scripts of all kinds through the plugin and a checkpoint that reads Qwen2 text ids."""

import asyncio
from collections.abc import Iterator

import pytest
from livekit.plugins import playhead

from playhead.engine.engine import Engine
from playhead.engine.models.synthetic import write_checkpoint
from playhead.worker.client import EngineClient
from playhead.worker.thread_carrier import ThreadCarrier
from tests.agents.conftest import admits_always
from tests.agents.test_embedded_voice import PATIENT
from tests.agents.test_options import SCRIPTS

pytestmark = pytest.mark.slow

NUM_TOKENS = 14
"""Of one character each: the fewest that a model writes at once."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineClient]:
    """Run a checkpoint of random weights."""
    torch = pytest.importorskip("torch")
    folder = write_checkpoint(tmp_path_factory.mktemp("tiny"), "tiny", dtype=torch.float32)
    client = EngineClient(ThreadCarrier(lambda results: Engine(folder, admits_always(), results)))
    client.start()
    yield client
    client.close()


@pytest.mark.parametrize("text", SCRIPTS.values(), ids=SCRIPTS.keys())
async def test_first_audio_comes_before_the_fifteenth_token(
    client: EngineClient, text: str
) -> None:
    voice = playhead.TTS(engine=client)
    async with voice.stream(conn_options=PATIENT) as stream:
        for character in text[:NUM_TOKENS]:
            stream.push_text(character)
        async with asyncio.timeout(60):
            first = await anext(aiter(stream))
    assert first.frame.samples_per_channel > 0

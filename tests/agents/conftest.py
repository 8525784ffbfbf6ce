"""Engines and checks the agents' tests share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from livekit.plugins import playhead

from playhead.engine.engine import Engine
from playhead.engine.library import EMBEDDED_VOICE
from playhead.engine.messages import Result
from playhead.engine.profile import Profile, load_profile
from playhead.worker.client import EngineClient
from playhead.worker.thread_carrier import ThreadCarrier
from tests.agents.fakes import Answer, ScriptedCarrier, WatchedCarrier
from tests.agents.wire import serving


def admits_always() -> Profile:
    """The default profile on a host that is never too busy to admit a request."""
    profile = load_profile("cpu")
    object.__setattr__(profile, "busy_limit", 1e9)  # past what a profile file may say
    return profile


MakeTts = Callable[..., tuple[playhead.TTS, ScriptedCarrier]]


@pytest_asyncio.fixture(autouse=True)
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Fail a test that leaves asyncio tasks behind."""
    before = asyncio.all_tasks()
    yield
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not left, f"tasks left behind: {[task.get_name() for task in left]}"


@pytest.fixture
def make_tts() -> MakeTts:
    """Return a factory of a TTS whose engine is a scripted one."""

    def make(answer: Answer, **options: object) -> tuple[playhead.TTS, ScriptedCarrier]:
        carrier = ScriptedCarrier(answer)
        client = EngineClient(carrier)
        client.start()
        return playhead.TTS(engine=client, **options), carrier  # type: ignore[arg-type]

    return make


@pytest_asyncio.fixture(params=["process", "wire"])
async def any_tts(request: pytest.FixtureRequest, make_tts: MakeTts) -> AsyncIterator[MakeTts]:
    """Return a factory of a TTS with a scripted engine: in this process, or behind a server."""
    if request.param == "process":
        yield make_tts
        return
    async with serving() as engine:
        made: list[playhead.TTS] = []

        def make(answer: Answer, **options: object) -> tuple[playhead.TTS, ScriptedCarrier]:
            made.append(playhead.TTS(base_url=engine.url, **options))  # type: ignore[arg-type]
            return made[-1], engine.play(answer)

        yield make
        for voice in made:
            await voice.aclose()


@dataclass
class RealEngine:
    """The embedded voice on its thread, watched."""

    engine: Engine
    carrier: WatchedCarrier
    client: EngineClient

    def idle(self) -> bool:
        """Nothing that was ever submitted is left."""
        metrics = self.engine.metrics
        ended = metrics.done + metrics.cancelled + metrics.failed + metrics.refused
        return ended == self.carrier.num_submits


@pytest.fixture(scope="session")
def loaded_engine() -> Iterator[RealEngine]:
    """Load the embedded voice once for the session."""
    engines: list[Engine] = []

    def make(on_results: Callable[[list[Result]], None]) -> Engine:
        engines.append(Engine(EMBEDDED_VOICE, admits_always(), on_results))
        return engines[0]

    carrier = WatchedCarrier(ThreadCarrier(make))
    client = EngineClient(carrier)
    client.start()
    yield RealEngine(engines[0], carrier, client)
    client.close()


@pytest.fixture
def real_engine(loaded_engine: RealEngine) -> Iterator[RealEngine]:
    """Return the embedded voice with nothing to do and nothing remembered."""
    loaded_engine.carrier.forget()
    yield loaded_engine
    loaded_engine.carrier.forget()

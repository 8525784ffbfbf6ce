"""One engine for a process: made once, off the loop, made again only after it failed."""

import asyncio
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from livekit.agents import APIConnectionError, APIConnectOptions, APIError
from livekit.plugins import playhead
from livekit.plugins.playhead.shared_engine import SharedEngine, given_engine, own_engine

from playhead.engine.errors import CheckpointError, TransportError
from playhead.worker.client import EngineClient
from playhead.worker.engine_server import EngineServer
from tests.agents.fakes import ScriptedCarrier, WordSpeaker, frame_pcm, samples_of

ROOT = Path(__file__).parents[2]


def started() -> EngineClient:
    client = EngineClient(ScriptedCarrier(WordSpeaker()))
    client.start()
    return client


class Connect:
    """Makes clients, or fails as told, and counts."""

    def __init__(self, *outcomes: EngineClient | Exception) -> None:
        self.outcomes = list(outcomes)
        self.threads: list[str] = []
        self.gate = threading.Event()

    def __call__(self) -> EngineClient:
        self.threads.append(threading.current_thread().name)
        assert self.gate.wait(10)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_many_loops_and_threads_get_one_client() -> None:
    client = started()
    connect = Connect(client)
    engine = SharedEngine(connect)
    others = [asyncio.to_thread(asyncio.run, engine.client()) for _ in range(4)]
    mine = asyncio.gather(*others, *(engine.client() for _ in range(4)))
    await asyncio.sleep(0)
    assert not engine.ready
    connect.gate.set()
    assert set(await mine) == {client}
    assert connect.threads == ["playhead-load"] and engine.ready


async def test_a_waiter_that_gives_up_stops_nobody_else() -> None:
    client = started()
    connect = Connect(client)
    engine = SharedEngine(connect)
    gives_up, stays = (asyncio.create_task(engine.client()) for _ in range(2))
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.wait([gives_up])
    connect.gate.set()
    assert await stays is client and len(connect.threads) == 1


async def test_a_failed_start_is_tried_again_by_the_next_who_asks() -> None:
    client = started()
    connect = Connect(CheckpointError("damaged"), client)
    connect.gate.set()
    engine = SharedEngine(connect)
    with pytest.raises(CheckpointError):
        await engine.client()
    assert not engine.ready
    assert await engine.client() is client


@pytest.mark.parametrize("renew", [True, False])
async def test_an_engine_that_ended_is_replaced_if_it_was_our_own(renew: bool) -> None:
    first, second = started(), started()
    connect = Connect(first, second)
    connect.gate.set()
    engine = SharedEngine(connect, renew=renew)
    assert await engine.client() is first
    first.close()
    assert await engine.client() is (second if renew else first)


async def test_equal_settings_share_and_nothing_is_loaded_before_it_is_needed() -> None:
    assert own_engine("a/model", "cpu") is own_engine("a/model", "cpu")
    assert own_engine("a/model", "cpu") is not own_engine("b/model", "cpu")
    assert given_engine("/run/a.sock") is given_engine(Path("/run/a.sock"))
    assert not own_engine("a/model", "cpu").ready
    assert playhead.TTS()._engine is playhead.TTS(profile="cpu")._engine


async def test_a_lent_engine_speaks_for_whoever_names_none() -> None:
    client = started()
    playhead.use_engine(client)
    try:
        assert await playhead.TTS()._engine.client() is client
        assert playhead.TTS(profile="cpu")._engine is own_engine("embedded", "cpu")
    finally:
        playhead.use_engine(None)
    assert playhead.TTS()._engine is own_engine("embedded", "cpu")


async def test_prewarm_returns_at_once_and_starts_the_engine() -> None:
    client = started()
    voice = playhead.TTS(engine=client)
    voice.prewarm()
    assert await voice._engine.client() is client


@pytest.mark.parametrize(
    ("options", "message"),
    [({"model": "no-such-folder"}, "no-such-folder"), ({"profile": "no-such"}, "no-such")],
    ids=["model", "profile"],
)
async def test_an_engine_that_can_not_load_is_one_clear_error(
    options: dict[str, str], message: str
) -> None:
    voice = playhead.TTS(**options)  # type: ignore[arg-type]
    events: list[object] = []
    voice.on("error", events.append)
    with pytest.raises(APIError, match=message) as raised:
        await voice.synthesize("Hello.").collect()
    assert not raised.value.retryable and len(events) == 1


async def test_no_engine_at_the_socket_may_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody() -> EngineClient:
        raise TransportError("no engine answers")

    voice = playhead.TTS(engine=started())
    voice._engine = SharedEngine(nobody)
    options = APIConnectOptions(max_retry=1, retry_interval=0.01)
    with pytest.raises(APIError, match="no engine answers") as raised:
        await voice.synthesize("Hello.", conn_options=options).collect()
    assert raised.value.retryable


async def test_an_engine_process_is_spoken_through_its_socket() -> None:
    with tempfile.TemporaryDirectory(prefix="ph") as folder:
        path = Path(folder) / "engine.sock"
        ready = asyncio.Event()
        server = EngineServer(ScriptedCarrier(WordSpeaker()), path)
        serving = asyncio.create_task(server.serve(ready.set))
        await asyncio.wait_for(ready.wait(), 30)
        voice = playhead.TTS(engine=path)
        async with voice.stream() as stream:
            stream.push_text("one two ")
            stream.push_text("three")
            stream.end_input()
            audio = [a async for a in stream]
        samples = samples_of([a.frame for a in audio])
        assert samples.startswith(b"".join(map(frame_pcm, range(3))))
        assert [v.name for v in await voice.list_voices()] == ["ada", "bo"]
        server.stop()
        await serving
        options = APIConnectOptions(max_retry=0)
        with pytest.raises(APIConnectionError) as raised:
            await voice.synthesize("four", conn_options=options).collect()
        assert raised.value.retryable
        voice._engine.close()


WITHOUT_TORCH = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton", "transformers", "safetensors"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Blocker())
from livekit.agents import Plugin
from livekit.plugins import playhead
assert [p.title for p in Plugin.registered_plugins] == ["livekit.plugins.playhead"]
assert not {"torch", "triton", "playhead.engine.engine"} & set(sys.modules)

import asyncio
async def main():
    voice = playhead.TTS()
    try:
        await voice.synthesize("Hello.").collect()
    except Exception as error:
        assert not error.retryable
        print(error)
asyncio.run(main())
"""


@pytest.mark.slow
def test_import_and_construction_need_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH],
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "playhead[engine]" in done.stdout

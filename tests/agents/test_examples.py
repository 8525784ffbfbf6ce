"""The example agents, run as they are: in a job without a server, and in real rooms."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from livekit import api, rtc
from livekit.agents import AgentServer, JobExecutorType, JobProcess
from livekit.plugins import playhead

from playhead.engine.messages import Cancel, Close, Command, Submit
from playhead.worker.client import EngineClient
from playhead.worker.demo.server import Access
from playhead.worker.listener import Listener
from playhead.worker.permissions import RoomPolicy
from playhead.worker.session import RoomSession
from tests.agents.conftest import RealEngine
from tests.agents.fakes import (
    ScriptedCarrier,
    ScriptedLLM,
    WordSpeaker,
    session_of,
    tokens,
    until,
)

AGENTS = Path(__file__).parents[2] / "agents"
REPLY = "Take the second left after the bridge."
LONG_REPLY = "Take the second left after the bridge, then the next one. " * 20


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, AGENTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lend() -> Iterator[Any]:
    """Lend an engine to whatever the example makes."""
    yield playhead.use_engine
    playhead.use_engine(None)


@asynccontextmanager
async def job_of(
    example: ModuleType,
    model: ScriptedLLM,
    access: Access | None,
    entry: str = "answer_callers",
    stt: object | None = None,
    **job: Any,
) -> AsyncIterator[None]:
    """Run an example's entry as a job of its own thread; it hears nothing unless `stt` does."""

    def prepare(process: JobProcess) -> None:
        if hasattr(example, "prepare"):
            example.prepare(process)
        process.userdata.update(llm=model, stt=stt)

    playhead.TTS().prewarm()  # as the example does when it is run
    reach = access or Access("ws://127.0.0.1:9", "key", "secret" * 6)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in reach.environment().items():
            patch.setenv(name, value)
        server = AgentServer(
            job_executor_type=JobExecutorType.THREAD,
            setup_fnc=prepare,
            num_idle_processes=0,
            host="127.0.0.1",
            port=0,
        )
        server.rtc_session(getattr(example, entry))
        started = asyncio.Event()
        server.on("worker_started", started.set)
        running = asyncio.create_task(server.run(devmode=True, unregistered=True))
        await asyncio.wait_for(started.wait(), 30)
        try:
            await server.simulate_job(**job)
            yield
        finally:
            await server.aclose()
            await asyncio.wait([running])


async def test_voice_bot_greets_in_a_job_without_a_server(lend: Any) -> None:
    voice_bot = load_example("voice_bot")
    carrier = ScriptedCarrier(WordSpeaker())
    client = EngineClient(carrier)
    client.start()
    lend(client)
    async with job_of(voice_bot, ScriptedLLM(), None, room="console", fake_job=True):
        await until(lambda: bool(carrier.of(Close)))
    text = "".join(getattr(command, "text", "") for command in carrier.sent)
    assert text == voice_bot.GREETING


async def test_voice_bot_thinks_with_any_llm_of_openais_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("LLM_MODEL", "some-model")
    process = JobProcess(executor_type=JobExecutorType.THREAD, user_arguments=None, http_proxy=None)
    load_example("voice_bot").prepare(process)
    assert process.userdata["llm"].model == "some-model"
    assert str(process.userdata["llm"]._client.base_url) == "http://127.0.0.1:9/v1/"


@pytest.mark.livekit
async def test_voice_bot_answers_and_is_interrupted_in_a_real_room(
    lend: Any, real_engine: RealEngine, livekit_server: Access, room_name: str
) -> None:
    voice_bot = load_example("voice_bot")
    metrics = real_engine.engine.metrics
    frames_at_cancel: list[int] = []

    def note(command: Command) -> None:
        if isinstance(command, Cancel):
            frames_at_cancel.append(metrics.frame_rows)

    real_engine.carrier.on_send = note
    lend(real_engine.client)
    model = ScriptedLLM(LONG_REPLY, REPLY, token_s=0.01)
    caller = Listener()
    room_info = api.Room(sid="RM_test", name=room_name)
    token = livekit_server.token("voice-bot", room_name, kind="agent")
    job = {"room": room_name, "room_info": room_info, "token": token}
    async with job_of(voice_bot, model, livekit_server, **job):
        await until(lambda: len(real_engine.carrier.of(Submit)) == 1)  # it speaks to nobody yet
        await caller.join(livekit_server.url, livekit_server.token("caller", room_name))
        chat = caller.room.local_participant
        await until(lambda: "".join(caller.captions) == voice_bot.GREETING)
        await until(real_engine.idle)
        await chat.send_text("Where?", topic="lk.chat")
        await until(lambda: len(real_engine.carrier.of(Submit)) == 2)
        await until(lambda: "second left" in "".join(caller.captions))
        await chat.send_text("And now?", topic="lk.chat")
        await until(lambda: len(real_engine.carrier.of(Submit)) == 3)
        assert len(frames_at_cancel) == 1
        submits = real_engine.carrier.of(Submit)
        assert real_engine.carrier.of(Cancel)[0].request_id == submits[1].request_id
        await until(lambda: "".join(caller.captions).endswith(REPLY))
        await until(real_engine.idle)
        assert caller.recording.pcm().any()
        await caller.leave()


async def test_multilingual_speaks_in_the_voice_that_was_asked_for(lend: Any) -> None:
    multilingual = load_example("multilingual")
    carrier = ScriptedCarrier(WordSpeaker())
    client = EngineClient(carrier)
    client.start()
    lend(client)
    speech = playhead.TTS()
    agent = multilingual.Polyglot(speech, await speech.list_voices())
    assert "ada, bo" in agent.instructions and "english" in agent.instructions
    call = {"name": "change_voice", "arguments": '{"voice": "bo", "language": "english"}'}
    wrong = {"name": "change_voice", "arguments": '{"voice": "cy", "language": "english"}'}
    model = ScriptedLLM("Hello there.", call, "I am bo now.", wrong, "Sorry.")
    async with session_of(speech, model, agent) as (session, _):
        await session.generate_reply(user_input="Hello?")
        await session.generate_reply(user_input="Another voice, please.")
        await session.generate_reply(user_input="And cy?")
        voices = [(c.voice, c.language) for c in carrier.of(Submit)]
        assert voices == [(None, "auto"), ("bo", "english"), ("bo", "english")]
        outputs = [i.output for i in session.history.items if i.type == "function_call_output"]
        assert "speaking as bo" in outputs[0] and "ada, bo" in outputs[1]


@pytest.mark.livekit
async def test_read_aloud_has_its_text_heard_in_a_real_room(
    real_engine: RealEngine, livekit_server: Access, room_name: str
) -> None:
    read_aloud = load_example("read_aloud")
    speaker_room, reader_room, listener = rtc.Room(), rtc.Room(), Listener()
    session = RoomSession(speaker_room, real_engine.client, RoomPolicy())
    speaking: asyncio.Task[None] | None = None

    async def text() -> AsyncIterator[str]:
        for token in tokens(REPLY):
            yield token
            await asyncio.sleep(0.01)

    try:
        token = livekit_server.token("speaker", room_name, kind="agent")
        await speaker_room.connect(livekit_server.url, token)
        speaking = asyncio.create_task(session.run())
        await listener.join(livekit_server.url, livekit_server.token("listener", room_name))
        token = livekit_server.token(read_aloud.IDENTITY, room_name, kind="agent")
        await reader_room.connect(livekit_server.url, token)
        heard = await asyncio.wait_for(read_aloud.read_aloud(reader_room, text()), 60)
        assert heard == REPLY
        assert listener.recording.pcm().any()
    finally:
        await listener.leave()
        await reader_room.disconnect()
        if speaking is not None:
            speaking.cancel()
            await asyncio.wait([speaking])
        await speaker_room.disconnect()

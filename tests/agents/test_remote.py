"""An engine behind a URL: connections that are shared, die, are cut, and are closed."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio
from livekit.agents import (
    APIConnectionError,
    APIConnectOptions,
    APIStatusError,
    APITimeoutError,
    tts,
)
from livekit.plugins import playhead
from livekit.plugins.playhead.remote import RemoteEngine, socket_url
from livekit.plugins.playhead.shared_engine import own_engine

from playhead.engine.messages import (
    Accepted,
    Cancel,
    Command,
    Done,
    PlaybackSnapshot,
    Result,
    Submit,
)
from playhead.worker.client import EngineClient
from playhead.worker.http.options import HttpOptions
from tests.agents.fakes import (
    ScriptedCarrier,
    WordSpeaker,
    frame_pcm,
    pcm,
    samples_of,
    silent,
    until,
)
from tests.agents.wire import Relay, WiredEngine, serving

TEXT = "one two three"
WHOLE = b"".join(map(frame_pcm, range(3)))
ONCE = APIConnectOptions(max_retry=0, timeout=5)
TWICE = APIConnectOptions(max_retry=1, retry_interval=0.01, timeout=5)


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[WiredEngine]:
    async with serving() as serving_engine:
        yield serving_engine


@pytest_asyncio.fixture
async def relay(engine: WiredEngine) -> AsyncIterator[Relay]:
    """Pass a scripted engine's service on through links that can break."""
    port = urlsplit(engine.url).port
    assert port is not None
    async with Relay(port) as passing:
        yield passing


def watched(voice: playhead.TTS) -> list[bool]:
    """Return a list that fills with whether each error event can be recovered from."""
    events: list[bool] = []

    def note(event: tts.TTSError) -> None:
        events.append(event.recoverable)

    voice.on("error", note)
    return events


async def speak(voice: playhead.TTS, text: str = TEXT, options: APIConnectOptions = ONCE) -> bytes:
    async with voice.stream(conn_options=options) as stream:
        stream.push_text(text)
        stream.end_input()
        return samples_of([audio.frame async for audio in stream])


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://host:8880", "ws://host:8880/v1/audio/speech/ws"),
        ("http://host:8880/", "ws://host:8880/v1/audio/speech/ws"),
        ("https://host/v1", "wss://host/v1/audio/speech/ws"),
        ("https://host/tts/v1/", "wss://host/tts/v1/audio/speech/ws"),
        ("ws://host/v1/audio/speech/ws", "ws://host/v1/audio/speech/ws"),
    ],
)
def test_base_url_names_the_socket(base_url: str, url: str) -> None:
    assert socket_url(base_url) == url


@pytest.mark.parametrize("base_url", ["host:8880", "ftp://host", "", "http://"])
def test_what_is_no_url_is_refused(base_url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        playhead.TTS(base_url=base_url)


def test_the_environment_names_a_server_for_those_who_choose_no_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLAYHEAD_URL", "http://elsewhere:1")
    engine = playhead.TTS()._engine
    assert isinstance(engine, RemoteEngine) and "elsewhere" in engine.url
    here = playhead.TTS(base_url="http://here:1")._engine
    assert isinstance(here, RemoteEngine) and "here:1" in here.url
    assert playhead.TTS(model="some/model")._engine is own_engine("some/model", "cpu")
    client = EngineClient(ScriptedCarrier(WordSpeaker()))
    assert not isinstance(playhead.TTS(engine=client)._engine, RemoteEngine)
    playhead.use_engine(client)
    try:
        assert not isinstance(playhead.TTS()._engine, RemoteEngine)
    finally:
        playhead.use_engine(None)


async def test_turns_share_a_connection(engine: WiredEngine, relay: Relay) -> None:
    voice = playhead.TTS(base_url=relay.url)
    reused: list[bool] = []
    voice.on("metrics_collected", lambda event: reused.append(event.connection_reused))
    for _ in range(20):
        assert await speak(voice) == WHOLE
    assert relay.num_links == 1 and relay.num_open == 1
    assert reused == [False] + [True] * 19
    await voice.aclose()
    await until(lambda: relay.num_open == 0)


async def test_more_than_a_connection_holds_open_another(engine: WiredEngine, relay: Relay) -> None:
    engine.play(silent)
    voice = playhead.TTS(base_url=relay.url)
    streams = [voice.stream() for _ in range(12)]  # the server takes 8 on one
    for stream in streams:
        stream.push_text(TEXT)
    await until(lambda: len(engine.carrier.of(Submit)) == 12)
    assert relay.num_links == 2
    await voice.aclose()
    await until(lambda: len(engine.carrier.of(Cancel)) == 12)


async def test_prewarm_opens_the_connection(engine: WiredEngine, relay: Relay) -> None:
    voice = playhead.TTS(base_url=relay.url)
    voice.prewarm()
    await until(lambda: voice._engine.ready)
    assert await speak(voice) == WHOLE
    assert relay.num_links == 1
    await voice.aclose()


async def test_voices_are_those_of_the_server(engine: WiredEngine) -> None:
    voice = playhead.TTS(base_url=engine.url)
    assert voice.model == "qwen3-tts"
    assert [each.name for each in await voice.list_voices()] == ["ada", "bo"]
    assert voice.model == "playhead-english"
    await voice.aclose()


async def test_a_connection_cut_while_idle_is_replaced_without_a_word(
    engine: WiredEngine, relay: Relay
) -> None:
    voice = playhead.TTS(base_url=relay.url)
    events = watched(voice)
    assert await speak(voice) == WHOLE
    relay.cut()
    await until(lambda: not voice._engine.ready)
    assert await speak(voice) == WHOLE
    assert events == [] and relay.num_links == 2
    await voice.aclose()


async def test_a_connection_that_died_unnoticed_is_replaced_without_a_word(
    engine: WiredEngine, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livekit.plugins.playhead.speech_socket.ANSWER_S", 0.2)
    voice = playhead.TTS(base_url=relay.url)
    events = watched(voice)
    assert await speak(voice) == WHOLE
    relay.silence()
    assert await speak(voice) == WHOLE
    assert events == [] and relay.num_links == 2
    await voice.aclose()


async def test_a_server_that_restarted_is_spoken_to_again(engine: WiredEngine) -> None:
    voice = playhead.TTS(base_url=engine.url)
    events = watched(voice)
    assert await speak(voice) == WHOLE
    engine.service.draining = True  # new connections and utterances are refused
    for socket in list(voice._engine._sockets):  # type: ignore[union-attr]
        await socket._connection.close()
    asyncio.get_running_loop().call_later(0.05, setattr, engine.service, "draining", False)
    options = APIConnectOptions(max_retry=3, retry_interval=0.1, timeout=5)
    assert await speak(voice, options=options) == WHOLE
    assert events and all(events)
    await voice.aclose()


@pytest.mark.parametrize(
    "frames", [0, 4, 9], ids=["before audio", "after 300 ms", "before the end"]
)
async def test_audio_of_a_cut_connection_is_never_said_twice(
    engine: WiredEngine, relay: Relay, frames: int
) -> None:
    def play_and_cut(command: Command) -> list[Result]:
        if not isinstance(command, Submit):
            return []
        first = len(engine.carrier.of(Submit)) == 1
        name, num = command.request_id, frames if first else 10
        audio: list[Result] = [pcm(name, number) for number in range(num)]
        if not first:
            audio.append(Done(name, "stop", 0, num))
        return [Accepted(name), *audio]

    engine.play(play_and_cut)
    voice = playhead.TTS(base_url=relay.url)
    events = watched(voice)
    heard = bytearray()
    stream = voice.stream(conn_options=TWICE)
    stream.push_text(TEXT)
    stream.end_input()

    async def hear() -> None:
        async for audio in stream:
            heard.extend(bytes(audio.frame.data))

    hearing = asyncio.create_task(hear())
    await until(lambda: len(engine.carrier.of(Submit)) == 1)
    await until(lambda: len(heard) >= (frames - 1) * len(frame_pcm(0)))
    await asyncio.sleep(0.05)  # the link holds nothing any more
    relay.cut()
    whole = b"".join(map(frame_pcm, range(10)))
    if frames == 0:
        await hearing
        assert bytes(heard) == whole and events == [True]
    else:
        with pytest.raises(APIConnectionError) as raised:
            await hearing
        assert not raised.value.retryable and events == [False]
        assert whole.startswith(bytes(heard)) and len(engine.carrier.of(Submit)) == 1
    await stream.aclose()
    await voice.aclose()


async def test_nobody_at_the_url_may_be_tried_again() -> None:
    voice = playhead.TTS(base_url="http://127.0.0.1:9")
    events = watched(voice)
    with pytest.raises(APIConnectionError, match=r"127\.0\.0\.1:9") as raised:
        await speak(voice, options=TWICE)
    assert raised.value.retryable and events == [True, False]
    await voice.aclose()


async def test_a_server_that_never_answers_is_a_timeout() -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    voice = playhead.TTS(base_url=f"http://127.0.0.1:{port}")
    with pytest.raises(APITimeoutError):
        await speak(voice, options=APIConnectOptions(max_retry=0, timeout=0.2))
    await voice.aclose()
    server.close()


async def test_another_server_is_named_as_such() -> None:
    async with serving() as engine:
        voice = playhead.TTS(base_url=f"{engine.url}/elsewhere")
        events = watched(voice)
        with pytest.raises(APIStatusError, match="404") as raised:
            await speak(voice, options=TWICE)
        assert raised.value.status_code == 404 and events == [False]
        await voice.aclose()


async def test_a_key_is_sent_and_a_wrong_one_refused_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(HttpOptions(keys=("right-key-of-the-tests",))) as engine:
        voice = playhead.TTS(base_url=engine.url, api_key="right-key-of-the-tests")
        assert await speak(voice) == WHOLE
        await voice.aclose()
        monkeypatch.setenv("PLAYHEAD_API_KEY", "right-key-of-the-tests")
        voice = playhead.TTS(base_url=engine.url)
        assert await speak(voice) == WHOLE
        await voice.aclose()
        voice = playhead.TTS(base_url=engine.url, api_key="wrong-key-of-the-tests")
        events = watched(voice)
        with pytest.raises(APIStatusError, match="api_key") as raised:
            await speak(voice, options=TWICE)
        assert raised.value.status_code == 401 and events == [False]
        assert "wrong-key" not in str(raised.value)
        await voice.aclose()


async def test_a_session_that_was_given_stays_open(engine: WiredEngine) -> None:
    async with aiohttp.ClientSession() as session:
        voice = playhead.TTS(base_url=engine.url, http_session=session)
        assert await speak(voice) == WHOLE
        await voice.aclose()
        assert not session.closed


@pytest.mark.filterwarnings("error")
async def test_everything_of_our_own_is_closed(engine: WiredEngine, relay: Relay) -> None:
    voice = playhead.TTS(base_url=relay.url)
    engine.play(silent)
    stream = voice.stream()
    stream.push_text(TEXT)
    await until(lambda: len(engine.carrier.of(Submit)) == 1)
    relay.cut()
    await until(lambda: not voice._engine.ready)
    await voice.aclose()
    assert stream._task.done()
    assert relay.num_open == 0
    assert holds_nothing(voice)
    engine.play(WordSpeaker())
    assert await speak(voice) == WHOLE  # a closed voice may be used again
    await voice.aclose()


def holds_nothing(voice: playhead.TTS) -> bool:
    engine = voice._engine
    return isinstance(engine, RemoteEngine) and not engine._sockets and not engine._own_session


async def test_a_cancel_stops_the_engine_and_keeps_the_connection(
    engine: WiredEngine, relay: Relay
) -> None:
    engine.play(silent)
    voice = playhead.TTS(base_url=relay.url)
    for number in range(20):
        stream = voice.stream()
        stream.push_text(TEXT)
        await until(lambda number=number: len(engine.carrier.of(Submit)) == number + 1)
        await stream.aclose()
    await until(lambda: len(engine.carrier.of(Cancel)) == 20)
    engine.play(WordSpeaker())
    assert await speak(voice) == WHOLE
    assert relay.num_links == 1
    await voice.aclose()
    await until(lambda: engine.client.num_live == 0)


async def test_playback_is_reported_to_the_server(engine: WiredEngine) -> None:
    engine.play(WordSpeaker())
    voice = playhead.TTS(base_url=engine.url)
    async with voice.stream(conn_options=ONCE) as stream:
        stream.push_text("one two thr")
        await anext(aiter(stream))
        attempt = stream._attempt
        assert attempt is not None
        engine.carrier.playbacks.clear()
        attempt.report(snapshot(attempt.request_id, exited_samples=1000, state="paused"))
        await until(lambda: any(p.source == "reported" for p in engine.carrier.playbacks))
        last = engine.carrier.playbacks[-1]
        assert (last.exited_samples, last.state) == (1000, "paused")
        stream.push_text("ee")
        stream.end_input()
        async for _ in stream:
            pass
    await voice.aclose()


def snapshot(request_id: str, *, exited_samples: int, state: str) -> PlaybackSnapshot:
    return PlaybackSnapshot(
        request_id=request_id,
        at_s=0.0,
        pushed_samples=2 * 1920,
        exited_samples=exited_samples,
        dry_at_s=0.0,
        bridge_s=0.0,
        heard_samples=exited_samples,
        state=state,  # type: ignore[arg-type]
        source="exact",
    )


async def test_a_long_text_is_cut_into_messages(engine: WiredEngine) -> None:
    voice = playhead.TTS(base_url=engine.url)
    text = "word " * 3900
    assert len(await speak(voice, text)) == 3900 * len(frame_pcm(0))
    await voice.aclose()

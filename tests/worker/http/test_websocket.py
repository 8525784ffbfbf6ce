"""The speech WebSocket of a real server: text in pieces, many utterances, cancel, playback."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest

from playhead.worker.http.messages import AUDIO_HEADER, PROTOCOL
from tests.worker.http.conftest import ALICE, LONG, PAGE, SHORT, Served

pytestmark = pytest.mark.slow

Event = dict[str, Any]


class Talk:
    """One connection, with everything that came over it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.events: list[Event] = []
        self.audio: list[tuple[int, int, bytes]] = []
        """Utterance number, first sample, samples."""

    async def send(self, kind: str, utterance: str | None = None, **fields: Any) -> None:
        named = {"utterance": utterance} if utterance else {}
        await self.socket.send_json({"type": kind, **named, **fields})

    async def say(self, name: str, *pieces: str, end: bool = True, **controls: Any) -> None:
        await self.send("utterance.start", name, **controls)
        for sequence, piece in enumerate(pieces):
            await self.send("text.append", name, sequence=sequence, text=piece)
        if end:
            await self.send("text.end", name, sequence=len(pieces))

    async def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Read until an event is as wanted; return it."""
        while True:
            message = await self.socket.receive(timeout=30)
            if message.type is aiohttp.WSMsgType.BINARY:
                _, _, _, number, start = AUDIO_HEADER.unpack_from(message.data)
                self.audio.append((number, start, message.data[AUDIO_HEADER.size :]))
                continue
            assert message.type is aiohttp.WSMsgType.TEXT, (message, self.events)
            event = json.loads(message.data)
            self.events.append(event)
            if wanted(event):
                return event

    async def done(self, name: str) -> Event:
        return await self.until(
            lambda event: event["type"] == "utterance.done" and event["utterance"] == name
        )

    async def error(self) -> Event:
        return (await self.until(lambda event: event["type"] == "error"))["error"]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["type"] == kind]

    def samples(self, number: int) -> int:
        """Return the samples of an utterance, checking that none is missing or doubled."""
        next_sample = 0
        for owner, start, pcm in self.audio:
            if owner == number:
                assert start == next_sample
                next_sample += len(pcm) // 2
        return next_sample


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def talk(session: aiohttp.ClientSession, open_server: Served) -> AsyncIterator[Talk]:
    async with session.ws_connect(open_server.socket_url, protocols=[PROTOCOL]) as socket:
        assert socket.protocol == PROTOCOL
        talk = Talk(socket)
        await talk.until(lambda event: event["type"] == "session.created")
        yield talk


async def test_text_in_pieces_is_acknowledged_and_spoken(talk: Talk) -> None:
    pieces = ["Hel", "lo ", "there, ", "friend."]
    await talk.say("a", *pieces, voice="nova", seed=1)
    done = await talk.done("a")
    assert [each["sequence"] for each in talk.of("text.ack")] == [0, 1, 2, 3, 4]
    assert talk.samples(1) == done["num_samples"] > 12_000
    assert (done["reason"], talk.events[-1]["type"]) == ("stop", "utterance.done")
    words = [word for event in talk.of("words") for word in event["words"]]
    assert "".join(word["text"] for word in words) == "".join(pieces)
    starts = [word["start_s"] for word in words]
    assert starts == sorted(starts) and words[-1]["end_s"] <= done["num_samples"] / 24_000 + 0.1
    kinds = [event["type"] for event in talk.events]
    assert kinds.index("utterance.created") < kinds.index("utterance.accepted")


async def test_speech_starts_before_the_text_ends(talk: Talk) -> None:
    await talk.say("a", "One two three four five six. ", end=False)
    starved = await talk.until(lambda event: event["type"] == "text.starved")
    assert talk.samples(1) == starved["end_sample"] > 12_000
    await talk.send("text.append", "a", sequence=1, text="Seven.")
    await talk.send("text.end", "a", sequence=2)
    done = await talk.done("a")
    assert talk.samples(1) == done["num_samples"] > starved["end_sample"]


async def test_many_utterances_share_a_connection(talk: Talk) -> None:
    for _ in range(3):  # an ended name may be used again
        await talk.say("a", SHORT, seed=5)
        await talk.done("a")
    assert [each["number"] for each in talk.of("utterance.created")] == [1, 2, 3]
    sizes = {talk.samples(1), talk.samples(2), talk.samples(3)}
    assert len(sizes) == 1 and sizes != {0}, "the same seed and text"


async def test_a_cancel_after_the_end_of_the_text_is_read(talk: Talk, open_server: Served) -> None:
    before = open_server.quiet()
    await talk.say("a", LONG)
    await talk.until(lambda event: event["type"] == "words")
    await talk.send("utterance.cancel", "a")
    await talk.send("utterance.cancel", "a")  # idempotent
    done = await talk.done("a")
    assert done["reason"] == "cancelled" and done["heard_text"] in LONG
    assert talk.samples(1) == done["num_samples"] < 24_000 * 20
    num_chunks = len(talk.audio)
    await talk.send("ping", id="after")
    await talk.until(lambda event: event["type"] == "pong" and event["id"] == "after")
    assert len(talk.audio) == num_chunks, "audio after its done"
    after = open_server.until(lambda now: now["engine_cancelled"] > before["engine_cancelled"])
    assert after["engine_done"] == before["engine_done"]


async def test_a_cancel_at_once_still_gets_its_done(talk: Talk) -> None:
    for name in ("a", "b"):
        await talk.send("utterance.start", name)
        await talk.send("utterance.cancel", name)
        assert (await talk.done(name))["reason"] == "cancelled"
    await talk.say("c", SHORT)
    assert (await talk.done("c"))["reason"] == "stop"


async def test_a_flush_speaks_what_is_there_to_its_end(talk: Talk) -> None:
    await talk.say("a", "First half", end=False)
    await talk.send("text.flush", "a", sequence=1)
    await talk.until(lambda event: event["type"] == "words" and "half" in str(event["words"]))
    await talk.send("text.append", "a", sequence=2, text="Second half.")
    await talk.send("text.end", "a", sequence=3)
    done = await talk.done("a")
    assert talk.samples(1) == done["num_samples"]
    starts = [word["start_s"] for event in talk.of("words") for word in event["words"]]
    assert len(starts) == 4 and starts == sorted(starts)
    assert len(talk.of("utterance.accepted")) == 1


async def test_a_paused_player_stops_the_engine_until_it_plays_on(
    talk: Talk, open_server: Served
) -> None:
    await talk.say("a", LONG)
    await talk.until(lambda event: event["type"] == "words")
    await talk.send("playback.report", "a", played_samples=0, state="paused")
    first = await asyncio.to_thread(open_server.still_frames)
    assert open_server.numbers()["engine_live"] == 1
    await talk.send("playback.report", "a", played_samples=0, state="playing")
    more = await asyncio.to_thread(
        open_server.until, lambda now: now["engine_frame_rows"] > first + 10
    )
    assert more["engine_live"] == 1
    await talk.send("utterance.cancel", "a")
    done = await talk.done("a")
    assert done["playback"] == "reported"


@pytest.mark.parametrize(
    ("messages", "code", "param"),
    [
        (["{"], "invalid_json", None),
        (["[]"], "invalid_json", None),
        ([b"abc"], "binary_not_allowed", None),
        ([{"type": "dance"}], "unknown_type", "type"),
        ([{"type": ["ping"]}], "unknown_type", "type"),
        ([{"type": "ping", "colour": 1}], "unknown_field", "colour"),
        ([{"type": "utterance.start"}], "missing_field", "utterance"),
        ([{"type": "utterance.start", "utterance": "a b"}], "invalid_request", "utterance"),
        ([{"type": "utterance.start", "utterance": "a", "voice": "x"}], "unknown_voice", "voice"),
        (
            [{"type": "text.append", "utterance": "a", "sequence": 0, "text": "x"}],
            "no_such_utterance",
            None,
        ),
        (["start", "start"], "utterance_in_use", None),
        (
            ["start", {"type": "text.append", "utterance": "u", "sequence": 1, "text": "x"}],
            "invalid_sequence",
            "sequence",
        ),
        (
            ["start", {"type": "text.append", "utterance": "u", "sequence": 0, "text": ""}],
            "invalid_request",
            "text",
        ),
        (
            ["start", "end", {"type": "text.flush", "utterance": "u", "sequence": 1}],
            "text_ended",
            None,
        ),
        (
            ["start", {"type": "playback.report", "utterance": "u", "played_samples": 5}],
            "invalid_playback",
            "played_samples",
        ),
    ],
)
async def test_every_error_is_named_and_the_connection_goes_on(
    talk: Talk, messages: list[Any], code: str, param: str | None
) -> None:
    known = {
        "start": {"type": "utterance.start", "utterance": "u"},
        "end": {"type": "text.end", "utterance": "u", "sequence": 0},
    }
    for message in messages:
        body = known.get(message, message) if isinstance(message, str) else message
        if isinstance(body, bytes):
            await talk.socket.send_bytes(body)
        else:
            await talk.socket.send_str(body if isinstance(body, str) else json.dumps(body))
    error = await talk.error()
    if code == "text_ended" and error["code"] == "no_such_utterance":
        return  # an empty utterance is over as soon as its text is
    assert (error["code"], error["param"]) == (code, param)
    await talk.say("next", SHORT, max_new_tokens=3)
    assert (await talk.done("next"))["reason"] == "length"


async def test_a_repeated_message_is_acknowledged_and_spoken_once(talk: Talk) -> None:
    await talk.say("a", SHORT, end=False)
    await talk.send("text.append", "a", sequence=0, text=SHORT)
    await talk.send("text.end", "a", sequence=1)
    await talk.done("a")
    words = "".join(word["text"] for event in talk.of("words") for word in event["words"])
    assert words == SHORT
    assert [each["sequence"] for each in talk.of("text.ack")] == [0, 0, 1]


async def test_utterances_of_a_connection_are_limited(talk: Talk) -> None:
    for number in range(9):
        await talk.send("utterance.start", f"u{number}")
    assert (await talk.error())["code"] == "too_many_utterances"


async def test_an_open_connection_dropped_frees_the_engine(
    session: aiohttp.ClientSession, open_server: Served
) -> None:
    before = open_server.quiet()
    socket = await session.ws_connect(open_server.socket_url, protocols=[PROTOCOL])
    talk = Talk(socket)
    await talk.say("a", LONG)
    await talk.until(lambda event: event["type"] == "words")
    transport = socket.get_extra_info("socket")
    assert transport is not None
    socket._response.connection.transport.abort()  # type: ignore[union-attr]
    await asyncio.to_thread(
        open_server.until,
        lambda now: (
            now["engine_cancelled"] > before["engine_cancelled"] and not now["http_connections"]
        ),
    )


async def test_a_ping_frame_is_answered(talk: Talk) -> None:
    await talk.socket.ping(b"42")
    await talk.send("ping")
    await talk.until(lambda event: event["type"] == "pong")


async def test_a_message_over_the_limit_closes_with_1009(talk: Talk) -> None:
    await talk.socket.send_str("x" * 250_000)
    while (message := await talk.socket.receive(timeout=10)).type is aiohttp.WSMsgType.TEXT:
        continue
    assert talk.socket.close_code == 1009, message


@pytest.mark.parametrize("protocols", [[], ["something.else"]])
async def test_the_subprotocol_is_asked_for(
    session: aiohttp.ClientSession, open_server: Served, protocols: list[str]
) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await session.ws_connect(open_server.socket_url, protocols=protocols)
    assert caught.value.status == 400


async def test_idle_utterances_and_connections_end(
    session: aiohttp.ClientSession, strict_server: Served
) -> None:
    headers = {"Authorization": f"Bearer {ALICE}"}
    async with session.ws_connect(
        strict_server.socket_url, protocols=[PROTOCOL], headers=headers
    ) as socket:
        talk = Talk(socket)
        await talk.say("a", "Hello ", end=False)
        assert (await talk.error())["code"] == "input_timeout"
        assert (await talk.done("a"))["reason"] == "cancelled"
        assert (await talk.error())["code"] == "idle_timeout"
        assert (await socket.receive(timeout=10)).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1008


async def test_a_text_over_the_limit_is_refused_and_the_rest_spoken(
    session: aiohttp.ClientSession, strict_server: Served
) -> None:
    protocols = [PROTOCOL, f"playhead.key.{ALICE}"]  # a browser's way to give a key
    async with session.ws_connect(strict_server.socket_url, protocols=protocols) as socket:
        talk = Talk(socket)
        await talk.say("a", SHORT, end=False)
        await talk.send("text.append", "a", sequence=1, text="x" * 1200)
        await talk.send("text.end", "a", sequence=1)
        assert (await talk.error())["code"] == "text_too_long"
        assert (await talk.done("a"))["reason"] == "stop"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {ALICE}", "Origin": "https://evil.example"}, 403),
        ({"Authorization": f"Bearer {ALICE}", "Origin": PAGE}, 101),
    ],
)
async def test_keys_and_origins_are_checked_before_the_upgrade(
    session: aiohttp.ClientSession, strict_server: Served, headers: dict[str, str], status: int
) -> None:
    try:
        socket = await session.ws_connect(
            strict_server.socket_url, protocols=[PROTOCOL], headers=headers
        )
    except aiohttp.WSServerHandshakeError as error:
        assert error.status == status
    else:
        await socket.close()
        assert status == 101

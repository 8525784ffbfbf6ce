"""POST /v1/audio/speech of a real server: OpenAI's client, streams, errors, clients that leave."""

import base64
import io
import json
import socket
import struct
import wave
from typing import Any

import av
import httpx
import numpy as np
import openai
import pytest

from tests.worker.http.conftest import LONG, SHORT, Served

pytestmark = pytest.mark.slow

TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
PATH = "/v1/audio/speech"


def post(served: Served, body: Any, **more: Any) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **more.pop("headers", {})}
    return httpx.post(f"{served.url}{PATH}", content=content, headers=headers, timeout=30, **more)


def same(made: bytes, plain: bytes) -> bool:
    """Say whether it is the same speech: chunks of other lengths round the last bit otherwise."""
    if len(made) != len(plain):
        return False
    samples, expected = (np.frombuffer(each, "<i2").astype(int) for each in (made, plain))
    return int(np.abs(samples - expected).max()) <= 8


@pytest.fixture
def client(open_server: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{open_server.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def plain(open_server: Served) -> bytes:
    """Return what SHORT sounds like: the same seed is the same speech in every format."""
    return post(open_server, {"input": SHORT, "response_format": "pcm", "stream": False}).content


@pytest.mark.parametrize("name", TYPES)
def test_openai_client_gets_every_format(client: openai.OpenAI, plain: bytes, name: Any) -> None:
    made = client.audio.speech.with_raw_response.create(
        model="tts-1", voice="alloy", input=SHORT, response_format=name
    )
    assert made.headers["content-type"] == TYPES[name]
    assert made.headers["x-request-id"].startswith("req-")
    num_samples = len(plain) // 2
    if name == "pcm":
        assert same(made.content, plain)
        return
    with av.open(io.BytesIO(made.content)) as container:
        frames = list(container.decode(audio=0))
    found = sum(frame.samples * 24_000 / frame.sample_rate for frame in frames)
    assert num_samples - 960 <= found <= num_samples + 2_400


def test_openai_default_is_mp3_and_its_other_parameters_pass(client: openai.OpenAI) -> None:
    made = client.audio.speech.with_raw_response.create(
        model="gpt-4o-mini-tts",
        voice={"id": "nova"},
        input=SHORT,
        speed=1.25,
        stream_format="audio",
        extra_body={"seed": 3, "temperature": 0, "language": "english"},
    )
    assert made.headers["content-type"] == "audio/mpeg"
    assert int(made.headers["content-length"]) == len(made.content) > 1_000


def test_seed_and_aliases_decide_what_is_said(open_server: Served, plain: bytes) -> None:
    body = {"input": SHORT, "response_format": "pcm", "stream": False}
    assert same(post(open_server, {**body, "voice": "Narrator"}).content, plain)
    assert not same(post(open_server, {**body, "seed": 1}).content, plain)


def test_a_file_is_complete(open_server: Served, plain: bytes) -> None:
    made = post(open_server, {"input": SHORT, "response_format": "wav"})
    assert int(made.headers["content-length"]) == len(made.content)
    assert made.headers["x-playhead-stop"] == "stop"
    with wave.open(io.BytesIO(made.content)) as wav:
        assert same(wav.readframes(wav.getnframes()), plain)
        assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (24_000, 1, 2)


def test_a_limit_of_frames_is_told(open_server: Served) -> None:
    made = post(open_server, {"input": LONG, "response_format": "wav", "max_new_tokens": 10})
    assert made.headers["x-playhead-stop"] == "length"
    assert len(made.content) <= 44 + 10 * 1920 * 2


def test_a_stream_comes_in_chunks_and_its_wav_header_is_open(
    open_server: Served, plain: bytes
) -> None:
    body = {"input": SHORT, "response_format": "wav", "stream": True}
    with httpx.stream("POST", f"{open_server.url}{PATH}", json=body) as answer:
        assert answer.headers["transfer-encoding"] == "chunked"
        chunks = list(answer.iter_raw())
    data = b"".join(chunks)
    assert len(chunks) >= 3
    assert struct.unpack_from("<I", data, 40)[0] == 0xFFFFFFFF
    assert same(data[44:], plain)


@pytest.mark.parametrize("name", TYPES)
def test_a_stream_of_every_format_says_its_type_and_can_be_played(
    open_server: Served, plain: bytes, name: str
) -> None:
    made = post(open_server, {"input": SHORT, "response_format": name, "stream": True})
    assert made.headers["content-type"] == TYPES[name]
    assert "content-length" not in made.headers
    if name != "pcm":
        with av.open(io.BytesIO(made.content)) as container:
            frames = list(container.decode(audio=0))
        found = sum(frame.samples * 24_000 / frame.sample_rate for frame in frames)
        assert len(plain) // 2 - 960 <= found <= len(plain) // 2 + 2_400


def test_events_carry_the_same_audio_and_usage(open_server: Served, plain: bytes) -> None:
    body = {"input": SHORT, "response_format": "pcm", "stream_format": "sse"}
    made = post(open_server, body)
    assert made.headers["content-type"] == "text/event-stream"
    events = [json.loads(part.removeprefix("data: ")) for part in made.text.split("\n\n") if part]
    *deltas, done = events
    assert {each["type"] for each in deltas} == {"speech.audio.delta"}
    assert same(b"".join(base64.b64decode(each["audio"]) for each in deltas), plain)
    usage = done["usage"]
    assert done["type"] == "speech.audio.done" and usage["input_tokens"] == len(SHORT)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["output_tokens"] * 1920 >= len(plain) // 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        ({"input": SHORT, "colour": 1}, 400, "unknown_field"),
        ({"input": SHORT, "voice": "nobody"}, 400, "unknown_voice"),
        ({"input": SHORT, "model": "nothing"}, 404, "model_not_found"),
        ({"input": "a" * 20_001}, 413, "text_too_long"),
        (b'{"input": "' + b"a" * 400_000, 413, "body_too_large"),
        ({"input": SHORT, "speed": 4.5}, 400, "invalid_request"),
        ({"input": SHORT, "instructions": "Whisper."}, 422, "instructions_not_supported"),
    ],
)
def test_errors_have_openais_shape(open_server: Served, body: Any, status: int, code: str) -> None:
    answer = post(open_server, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"].keys() == {"message", "type", "code", "param"}
    assert answer.headers["x-request-id"].startswith("req-")


def test_openai_client_sees_its_own_error_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.speech.create(model="tts-1", voice="nobody", input=SHORT)
    assert (caught.value.code, caught.value.param) == ("unknown_voice", "voice")
    assert next(iter(client.models.list())).id == "playhead-english"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_other_bodies_and_paths_are_refused(open_server: Served) -> None:
    answer = post(open_server, {"input": SHORT}, headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert httpx.get(f"{open_server.url}/nothing").json()["error"]["code"] == "not_found"
    wrong = httpx.get(f"{open_server.url}{PATH}")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("live", [True, False])
def test_a_client_that_leaves_stops_the_engine(open_server: Served, live: bool) -> None:
    before = open_server.quiet()
    body = {"input": LONG * 4, "response_format": "pcm", "stream": live}
    with raw_request(open_server, body) as connection:
        if live:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        else:
            open_server.until(lambda now: now["http_live_utterances"] == 1)
    after = open_server.until(
        lambda now: (
            now["engine_cancelled"] > before["engine_cancelled"] and not now["http_live_utterances"]
        )
    )
    assert after["engine_cancelled"] == before["engine_cancelled"] + 1
    assert after["engine_done"] == before["engine_done"]
    still = open_server.still_frames()
    assert still - before["engine_frame_rows"] < 1_000  # of about 3,500
    assert still - after["engine_frame_rows"] <= 1, "a cancel is the last step's end"


def test_a_client_that_stops_reading_holds_at_most_the_target(open_server: Served) -> None:
    before = open_server.quiet()
    with raw_request(open_server, {"input": LONG, "response_format": "pcm"}) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        made = open_server.still_frames() - before["engine_frame_rows"]
        assert open_server.numbers()["engine_live"] == before["engine_live"] + 1
        # 1 s of target, less than 1 s in the buffers of the system, a batch under way
        assert 8 <= made <= 30
    open_server.until(lambda now: now["engine_live"] == before["engine_live"])


def test_a_client_that_takes_nothing_is_dropped(strict_server: Served) -> None:
    from tests.worker.http.conftest import ALICE

    before = strict_server.quiet()
    body = {"input": LONG, "response_format": "pcm"}
    with raw_request(strict_server, body, f"Authorization: Bearer {ALICE}\r\n") as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        after = strict_server.until(lambda now: now["http_stalled"] > before["http_stalled"])
    assert after["http_stalled"] == before["http_stalled"] + 1
    strict_server.until(lambda now: not now["http_live_utterances"])


def raw_request(served: Served, body: Any, headers: str = "") -> socket.socket:
    """Send a request over a socket whose own buffer is small, and return it unread."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", served.port))
    data = json.dumps(body).encode()
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
    connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return connection

"""Requests of clients that are broken or mean: each gets its answer, nothing reaches the log."""

import asyncio
import json
import re
import socket

import aiohttp
import httpx
import pytest

from playhead.engine.errors import ConfigError
from playhead.worker.cli import build_parser
from playhead.worker.http.messages import PROTOCOL
from playhead.worker.http.websocket import MAX_MESSAGE_BYTES
from tests.worker.http.conftest import Served

SPEECH = "/v1/audio/speech"
BODY = b'{"input": "Hi.", "max_new_tokens": 2}'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content-Encoding": "gzip"}, 400, "invalid_request"),
        ({"Content-Encoding": "deflate"}, 400, "invalid_request"),
        ({"Origin": "http://[::1"}, 403, "origin_not_allowed"),
        ({"Origin": "null"}, 403, "origin_not_allowed"),
        ({"Host": "[::1", "Origin": "http://[::1"}, 403, "origin_not_allowed"),
    ],
)
def test_odd_headers_are_the_clients_fault(
    open_server: Served, headers: dict[str, str], status: int, code: str
) -> None:
    given = {"Content-Type": "application/json", **headers}
    answer = httpx.post(open_server.url + SPEECH, content=BODY, headers=given)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.slow
@pytest.mark.parametrize(
    "raw",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 50 + b"\r\n\r\n",
    ],
    ids=["two lengths", "no chunk", "long header", "tls"],
)
def test_what_is_no_http_gets_400_and_is_closed(open_server: Served, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", open_server.port), timeout=20) as line:
        line.sendall(raw)
        answer = b""
        while data := line.recv(65_536):
            answer += data
    assert b" 400 " in answer.split(b"\r\n")[0] or b" 415 " in answer.split(b"\r\n")[0]


@pytest.mark.slow
async def test_a_thousand_utterances_share_a_connection(open_server: Served) -> None:
    left, ends = 1000, []
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(open_server.socket_url, protocols=[PROTOCOL]) as ws,
    ):
        for number in range(left):
            name = f"u{number % 5}"
            text = {"type": "text.append", "utterance": name, "sequence": 0, "text": "Hi. "}
            for each in ({"type": "utterance.start"}, text, {"type": "utterance.cancel"}):
                await ws.send_json(each | {"utterance": name})
            while len(ends) <= number:
                told = json.loads((await ws.receive(30)).data)
                assert told["type"] != "error", told
                if told["type"] == "utterance.done":
                    ends.append(told["reason"])
    assert ends == ["cancelled"] * left
    await asyncio.to_thread(open_server.quiet)


@pytest.mark.slow
async def test_a_message_of_the_limit_is_read(open_server: Served) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(open_server.socket_url, protocols=[PROTOCOL]) as ws,
    ):
        greeting = json.loads((await ws.receive(30)).data)
        assert greeting["limits"]["message_bytes"] == MAX_MESSAGE_BYTES
        await ws.send_str(" " * MAX_MESSAGE_BYTES)
        told = json.loads((await ws.receive(30)).data)
        assert told["error"]["code"] == "invalid_json"


@pytest.mark.slow
@pytest.mark.parametrize("raw", [b"", b"GE", b"GET /health HTTP/1.1\r\nHost: a\r\n"])
def test_a_connection_that_asks_nothing_is_closed(strict_server: Served, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", strict_server.port), timeout=30) as line:
        line.sendall(raw)
        assert line.recv(65_536) == b""


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--port", "65536"], "--port 65536"),
        (["--port", "-1"], "--port -1"),
        (["--idle-s", "nan"], "must be above 0"),
        (["--drain-s", "nan"], "--drain-s nan"),
        (["--cors-origin", "*"], "--cors-origin '*'"),
        (["--cors-origin", "https://page.example/"], "--cors-origin 'https://page.example/'"),
        (["--traces", "collector:4318"], "--traces 'collector:4318'"),
        (["--port", "0", "--port-file", "/nowhere/port"], "--port-file /nowhere/port"),
    ],
)
def test_wrong_flags_are_told(flags: list[str], told: str) -> None:
    args = build_parser().parse_args(["serve", *flags])
    with pytest.raises(ConfigError, match=re.escape(told)):
        args.run(args)

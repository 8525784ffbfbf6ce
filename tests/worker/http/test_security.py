"""Keys, limits, cross-origin rules and logs of a real server."""

import socket

import aiohttp
import httpx
import pytest

from playhead.worker.http.messages import PROTOCOL
from tests.worker.http.conftest import ALICE, BOB, LONG, PAGE, SHORT, Served

pytestmark = pytest.mark.slow

PATH = "/v1/audio/speech"


def post(served: Served, key: str | None, text: str = SHORT, **more: object) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"input": text, "response_format": "wav", **more}
    return httpx.post(f"{served.url}{PATH}", json=body, headers=headers, timeout=30)


def test_a_key_is_needed_and_enough(strict_server: Served) -> None:
    assert post(strict_server, ALICE).status_code == 200
    for key in (None, "wrong", ALICE[:-1]):
        answer = post(strict_server, key)
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["type"] == "authentication_error"
    for path in ("/v1/models", "/v1/voices"):
        assert httpx.get(f"{strict_server.url}{path}").status_code == 401
    for path in ("/health", "/ready", "/metrics", "/openapi.json"):
        assert httpx.get(f"{strict_server.url}{path}").status_code == 200


def test_a_key_has_its_own_limits(strict_server: Served) -> None:
    headers = {"Authorization": f"Bearer {BOB}"}
    body = {"input": "Eight words of a text to be streamed.", "response_format": "pcm"}
    with httpx.stream("POST", f"{strict_server.url}{PATH}", json=body, headers=headers) as first:
        assert first.status_code == 200
        second = post(strict_server, BOB)
        assert (second.status_code, second.json()["error"]["code"]) == (429, "concurrency_limit")
        assert int(second.headers["retry-after"]) >= 1
        assert post(strict_server, ALICE).status_code == 200
    strict_server.until(lambda now: not now["http_live_utterances"])
    spent = post(strict_server, BOB, "Many more words than are left of the minute of this key.")
    assert (spent.status_code, spent.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(spent.headers["retry-after"]) <= 60
    assert post(strict_server, BOB, "x" * 61).status_code == 413


def test_keys_are_replaced_without_a_restart(strict_server: Served) -> None:
    kept = strict_server.keys.read_text()
    fresh = "a-fresh-key-of-the-tests"
    assert post(strict_server, fresh).status_code == 401
    strict_server.keys.write_text(f"{kept}carol {fresh}\n")
    assert post(strict_server, fresh).status_code == 200
    strict_server.keys.write_text(kept)
    assert post(strict_server, fresh).status_code == 401
    assert post(strict_server, ALICE).status_code == 200


async def test_a_key_taken_away_starts_nothing_on_its_open_connection(
    strict_server: Served,
) -> None:
    kept, gone = strict_server.keys.read_text(), "a-key-that-is-taken-away"
    strict_server.keys.write_text(f"{kept}carol {gone}\n")
    headers, url = {"Authorization": f"Bearer {gone}"}, strict_server.socket_url
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=[PROTOCOL], headers=headers) as socket,
    ):
        told = [(await socket.receive_json(timeout=20))["type"]]
        for name in "ab":
            await socket.send_json({"type": "utterance.start", "utterance": name})
            event = await socket.receive_json(timeout=20)
            told.append(event.get("error", event).get("code", event["type"]))
            strict_server.keys.write_text(kept)
    assert told == ["session.created", "utterance.created", "invalid_api_key"]


@pytest.mark.parametrize(("origin", "allowed"), [(PAGE, True), ("https://evil.example", False)])
def test_only_named_pages_may_ask(strict_server: Served, origin: str, allowed: bool) -> None:
    url = f"{strict_server.url}/v1/voices"
    asking = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    before = httpx.options(url, headers=asking)
    assert (before.status_code == 204) is allowed
    assert before.headers.get("access-control-allow-origin") == (origin if allowed else None)
    answer = httpx.get(url, headers={"Origin": origin, "Authorization": f"Bearer {ALICE}"})
    assert answer.status_code == (200 if allowed else 403)
    readable = answer.headers.get("access-control-expose-headers", "").split(", ")
    assert ("Retry-After" in readable) is allowed
    assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)


def test_no_page_may_ask_by_default(open_server: Served) -> None:
    answer = httpx.get(f"{open_server.url}/v1/voices", headers={"Origin": PAGE})
    assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    own = httpx.get(f"{open_server.url}/v1/voices", headers={"Origin": open_server.url})
    assert own.status_code == 200
    rebound = {"Origin": "http://evil.example", "Host": "evil.example"}
    assert httpx.get(f"{open_server.url}/v1/voices", headers=rebound).status_code == 403


def test_neither_text_nor_keys_are_told_to_anybody_else(strict_server: Served) -> None:
    secret = "Xylophone"
    post(strict_server, ALICE, secret)
    post(strict_server, ALICE, secret, colour=1)
    post(strict_server, ALICE, secret, voice=secret)
    post(strict_server, ALICE, secret * 200)
    post(strict_server, "a-wrong-key-of-the-tests", LONG)
    with socket.create_connection(("127.0.0.1", strict_server.port)) as raw:
        raw.sendall(f"GET /v1/voices HTTP/1.1\r\nX: a\0{secret}\r\n{secret}\r\n\r\n".encode())
        assert b" 400 " in raw.recv(1000)
    told = strict_server.log.read_text() + httpx.get(f"{strict_server.url}/metrics").text
    assert "/v1/audio/speech" in told
    for hidden in (secret, "a-wrong-key", ALICE, BOB, "somebody stops"):
        assert hidden not in told, hidden

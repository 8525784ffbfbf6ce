from collections.abc import AsyncIterator

import aiohttp
import jwt
import pytest

from playhead.worker.demo.page import CallerPage
from playhead.worker.demo.server import Access

ACCESS = Access("ws://127.0.0.1:7880", "key", "secret" * 8)


@pytest.fixture
async def page() -> AsyncIterator[CallerPage]:
    page = CallerPage(ACCESS)
    await page.start()
    yield page
    await page.stop()


async def get(page: CallerPage, path: str, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as client,
        client.get(page.address + path, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_page_and_its_files_are_served(page: CallerPage) -> None:
    for path, part in (
        ("", "<title>playhead"),
        ("app.js", "startReceiverReports"),
        ("playhead-receiver.js", "playhead.receiver"),
        ("style.css", "--heard"),
    ):
        status, text = await get(page, path)
        assert status == 200 and part in text, path


async def test_token_names_room_and_caller(page: CallerPage) -> None:
    status, text = await get(page, "token?room=call-1&identity=me")
    assert status == 200
    token = jwt.decode(text.split('"token": "')[1].split('"')[0], ACCESS.secret, ["HS256"])
    assert token["sub"] == "me" and token["video"]["room"] == "call-1"
    assert not token["video"].get("roomAdmin")


@pytest.mark.parametrize("query", ["", "?room=a", "?room=a&identity=b%2Fc", "?room=a b&identity=c"])
async def test_token_is_refused_when_names_are_missing_or_odd(page: CallerPage, query: str) -> None:
    assert (await get(page, f"token{query}"))[0] == 400


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "example.org"},
        {"Host": "127.0.0.1.example.org"},
        {"Host": "192.168.1.4:80"},
        {"Origin": "http://example.org"},
    ],
)
async def test_token_is_refused_when_another_host_or_origin_asks(
    page: CallerPage, headers: dict[str, str]
) -> None:
    status, text = await get(page, "token?room=a&identity=b", **headers)
    assert status == 403 and "token" not in text


@pytest.mark.parametrize("path", ["nothing.js", "..%2Fcli.py", "%2e%2e/%2e%2e/pyproject.toml"])
async def test_files_beside_the_page_are_not_served(page: CallerPage, path: str) -> None:
    assert (await get(page, path))[0] == 404

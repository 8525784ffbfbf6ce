"""Text without a word over HTTP: a documented answer at once, and the service goes on."""

import json

import httpx
import pytest

from tests.worker.http.conftest import SHORT, Served

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "text",
    ["…", "？！", "😄", "**", "\u200b", "\x07", " \n", "- \n- "],
    ids=["dots", "wide", "emoji", "bold", "zero width", "control", "blank", "list"],
)
def test_text_without_a_word_is_no_sample_or_a_400(open_server: Served, text: str) -> None:
    body = json.dumps({"input": text, "response_format": "pcm", "stream": False}).encode()
    headers = {"Content-Type": "application/json"}
    url = f"{open_server.url}/v1/audio/speech"
    answer = httpx.post(url, content=body, headers=headers, timeout=20)
    if answer.status_code == 400:
        assert answer.json()["error"]["code"]
    else:
        assert (answer.status_code, answer.content) == (200, b"")
    spoken = httpx.post(url, json={"input": SHORT, "response_format": "pcm"}, timeout=30)
    assert spoken.status_code == 200 and len(spoken.content) > 24_000

"""Logs as JSON: one object a line, ids beside the message, never what people said."""

import json
import logging
import os
import subprocess
import sys

import pytest

from playhead.worker.logs import JsonFormatter


def line(**extra: object) -> dict[str, object]:
    record = logging.makeLogRecord(
        {"name": "playhead.x", "levelname": "INFO", "msg": "it %s", "args": ("went",), **extra}
    )
    body: dict[str, object] = json.loads(JsonFormatter().format(record))
    return body


def test_a_record_is_one_object_with_its_ids() -> None:
    body = line(request_id="r1", room="hall", created=1_800_000_000.25, msecs=250.0)
    assert body == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "INFO",
        "logger": "playhead.x",
        "message": "it went",
        "request_id": "r1",
        "room": "hall",
    }


def test_user_text_is_left_out_and_anything_can_be_written() -> None:
    body = line(pii="what they said", odd=object(), many="two\nlines")
    assert "pii" not in body and "what they said" not in str(body)
    assert str(body["odd"]).startswith("<object") and body["many"] == "two\nlines"


def test_an_error_comes_along() -> None:
    try:
        raise ValueError("broke")
    except ValueError:
        body = line(exc_info=sys.exc_info())
    assert "ValueError: broke" in str(body["error"])


@pytest.mark.slow
def test_every_line_of_a_command_is_json_when_asked() -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LIVEKIT_", "PLAYHEAD_"))}
    keys = {"LIVEKIT_API_KEY": "k", "LIVEKIT_API_SECRET": "s"}
    command = [sys.executable, "-m", "playhead.worker.cli", "worker", "--log-format", "json"]
    done = subprocess.run(
        [*command, "--profile", "nope"], env={**clean, **keys}, capture_output=True, text=True
    )
    lines = [each for each in done.stderr.splitlines() if not each.startswith("playhead:")]
    assert done.returncode == 2 and lines
    assert [json.loads(each)["message"] for each in lines] == ["child started"]

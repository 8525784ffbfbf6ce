"""Logs as JSON: one object a line, ids beside the message, never what people said."""

import json
import logging
import os
import subprocess
import sys

import pytest

from playhead.engine.messages import Word, Words
from playhead.engine.reference_audio import BadReference
from playhead.worker.logs import TEXT_FORMAT, JsonFormatter, TextFormatter


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


def broken(error: Exception, before: Exception | None = None) -> str:
    """Return what both formats write of an error that was raised while another was handled."""
    try:
        try:
            raise before or error
        except type(before or error):
            raise error from None if before is None else before
    except type(error):
        info = sys.exc_info()
    record = logging.makeLogRecord({"msg": "it broke", "exc_info": info})
    plain = TextFormatter(TEXT_FORMAT).format(record)
    told = str(line(exc_info=info)["error"])
    assert told in plain and "in broken" in told and "it broke" in plain
    return told


def test_an_error_comes_along_with_what_a_machine_says_of_it() -> None:
    assert broken(RuntimeError("out of memory")).endswith("RuntimeError: out of memory")
    assert broken(BadReference("5 s are needed")).endswith("BadReference: 5 s are needed")
    told = broken(OSError(28, "No space left"), before=RuntimeError("first"))
    assert told.index("RuntimeError: first") < told.index("OSError: [Errno 28] No space left")


@pytest.mark.parametrize(
    "error",
    [
        KeyError("secret"),
        ValueError("no such word: secret"),
        AssertionError(Words("r", (Word("secret", 0.0, 1.0),), False)),
        ExceptionGroup("secret", [LookupError("secret"), OSError("disk")]),
    ],
)
def test_an_error_that_may_quote_its_input_is_told_by_kind_and_place(error: Exception) -> None:
    told = broken(error)
    assert type(error).__name__ in told and "secret" not in told
    assert "secret" not in broken(RuntimeError("then"), before=error)
    if isinstance(error, ExceptionGroup):
        assert "Within it" in told and "LookupError" in told and "OSError: disk" in told


def test_a_job_process_passes_on_errors_without_their_quotes() -> None:
    """The framework's handler there formats a record before it goes to the worker."""
    code = (
        "import io, logging; from playhead.worker.logs import quote_nothing\n"
        "out = io.StringIO(); logging.getLogger().addHandler(logging.StreamHandler(out))\n"
        "quote_nothing()\n"
        "try: {}['secret']\n"
        "except KeyError: logging.getLogger('job').exception('it broke')\n"
        "print(out.getvalue())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("it broke\nTraceback") and "KeyError" in done.stdout, done.stderr
    assert "secret" not in done.stdout


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

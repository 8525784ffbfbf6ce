"""The two documents: every code, message and field in them is real, and none is left out."""

import ast
import re
from pathlib import Path

from playhead.worker.http.fields import Known, speech_schema
from playhead.worker.http.messages import TYPES
from playhead.worker.http.voices import Models, Voices
from playhead.worker.http.websocket import MAX_MESSAGE_BYTES

ROOT = Path(__file__).resolve().parents[3]
API, SOCKET = ((ROOT / "docs" / name).read_text() for name in ("api.md", "websocket.md"))
SOURCES = {path: path.read_text() for path in (ROOT / "worker" / "http").glob("*.py")}
ENGINE_CODES = {
    "unknown_voice",
    "unknown_language",
    "instructions_not_supported",
    "engine_failure",
    "busy",
}


def codes_in_source() -> set[str]:
    found = set(ENGINE_CODES)
    for text in SOURCES.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                code = node.args[1]
                if isinstance(code, ast.Constant) and isinstance(code.value, str):
                    found.add(code.value)
    return found


def test_every_error_code_is_documented_and_real() -> None:
    tables = API.split("## Errors")[1].split("## Keys")[0] + SOCKET.split("## Errors")[1]
    rows = [line.split("|") for line in tables.splitlines() if line.startswith("|")]
    cells = [row[2] if row[1].strip()[:1].isdigit() else row[1] for row in rows]
    documented = set(re.findall(r"`([a-z_]+)`", " ".join(cells)))
    assert documented - {"invalid_request", "text_too_long"} == codes_in_source() - {
        "invalid_request",
        "text_too_long",
    }


def test_every_field_of_a_request_is_documented() -> None:
    known = Known(("a",), ("english",), Voices({}), Models(None), 9, True)
    table = API.split("## POST")[1].split("## Other")[0]
    for name in speech_schema(known)["properties"]:
        stem = re.sub(r"^(predictor|subtalker)_(top_[kp])$", r"_\2", name)
        stem = re.sub(r"^subtalker_temperature$", "subtalker_", stem)
        assert f"`{stem}`" in table, name


def test_every_message_is_documented() -> None:
    emitted = set()
    for text in SOURCES.values():
        emitted |= set(re.findall(r"\.event\(\s*\"([a-z.]+)\"", text))
    assert "utterance.done" in emitted and len(emitted) >= 8
    for kind in (*TYPES, *emitted):
        assert f"| `{kind}` |" in SOCKET, kind
    assert f"{MAX_MESSAGE_BYTES:,}" in SOCKET


def test_files_named_in_the_documents_exist() -> None:
    for name in re.findall(r"`(agents/[\w./]+)`", API + SOCKET):
        assert (ROOT / name).is_file(), name

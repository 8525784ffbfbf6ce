"""What a WebSocket client may say: one schema for each message type; pure."""

import struct
from typing import Any

from playhead.worker.http.fields import Known, control_fields, open_names
from playhead.worker.http.problem import Problem
from playhead.worker.http.schema import Schema, check_object

PROTOCOL = "playhead.speech.v1"
AUDIO_HEADER = struct.Struct("<BBHIQ")
"""Version, kind, reserved, utterance number, first sample: 16 bytes before the samples."""
AUDIO_VERSION, AUDIO_PCM = 1, 1
MAX_NAME_CHARS = 64
MAX_MESSAGE_TEXT_CHARS = 16_384
_TYPE: Schema = {"type": "string"}
_NAME: Schema = {"type": "string", "maxLength": MAX_NAME_CHARS, "pattern": r"^[A-Za-z0-9_.:-]+$"}
_NUMBER: Schema = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
_TEXT: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_MESSAGE_TEXT_CHARS}
_NAMED = {"type": _TYPE, "utterance": _NAME}
_LIVE: Schema = {"type": "boolean"}
_STATE: Schema = {"type": "string", "enum": ["playing", "paused"]}
_FIXED: dict[str, Schema] = {
    "text.append": {
        "properties": {**_NAMED, "sequence": _NUMBER, "text": _TEXT},
        "required": ["utterance", "sequence", "text"],
    },
    "text.flush": {
        "properties": {**_NAMED, "sequence": _NUMBER},
        "required": ["utterance", "sequence"],
    },
    "text.end": {
        "properties": {**_NAMED, "sequence": _NUMBER},
        "required": ["utterance", "sequence"],
    },
    "utterance.cancel": {"properties": _NAMED, "required": ["utterance"]},
    "playback.report": {
        "properties": {**_NAMED, "played_samples": _NUMBER, "state": _STATE},
        "required": ["utterance", "played_samples"],
    },
    "ping": {"properties": {"type": _TYPE, "id": _NAME}},
}
START = "utterance.start"
TYPES = (START, *_FIXED)


def check_message(body: dict[str, Any], known: Known) -> tuple[str, dict[str, Any]]:
    """Return a message's type and its checked fields; raises Problem."""
    kind = body.get("type")
    if kind not in TYPES:
        raise Problem(400, "unknown_type", f"type must be one of {', '.join(TYPES)}", param="type")
    schema = _start_schema(known) if kind == START else _FIXED[kind]
    return kind, check_object(body, schema)


def about(body: dict[str, Any]) -> tuple[str | None, int | None]:
    """Return the utterance and sequence a refused message was about, where it said so."""
    name, sequence = body.get("utterance"), body.get("sequence")
    named = name if isinstance(name, str) and len(name) <= MAX_NAME_CHARS else None
    return named, sequence if type(sequence) is int and 0 <= sequence < 1 << 53 else None


def audio_frame(number: int, start_sample: int, pcm: bytes) -> bytes:
    """Return samples behind their header."""
    return AUDIO_HEADER.pack(AUDIO_VERSION, AUDIO_PCM, 0, number, start_sample) + pcm


def _start_schema(known: Known) -> Schema:
    fields = {**_NAMED, "live": _LIVE, **control_fields(known)}
    return open_names({"properties": fields, "required": ["utterance"]})

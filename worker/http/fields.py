"""Fields of a speech request: one table for the check, the OpenAPI document and the WebSocket."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from playhead.engine.errors import InputError
from playhead.engine.messages import Sampling, Submit
from playhead.engine.text.pronunciations import (
    MAX_PRONUNCIATIONS,
    MAX_RESPELLING_CHARS,
    MAX_WORD_CHARS,
    check_pronunciations,
)
from playhead.worker.http.problem import Problem
from playhead.worker.http.schema import Schema, check_object
from playhead.worker.http.tempo import FASTEST, OWN, SLOWEST
from playhead.worker.http.voices import AUTO, Models, Voices, check_language

if TYPE_CHECKING:  # the store needs what a client of the service has not
    from playhead.worker.http.stored_voices import OwnVoices

FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
MAX_SEED = 2**53 - 1
"""The largest whole number every JSON reader keeps."""
MAX_FRAMES = 32_768
MAX_INSTRUCTION_CHARS = 2_000
MAX_NAME_CHARS = 64
_NUMBER, _INTEGER, _FLAG = {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
TEMPERATURE = {**_NUMBER, "minimum": 0, "maximum": 10}
TOP_K = {**_INTEGER, "minimum": 0, "maximum": 1 << 20}
TOP_P = {**_NUMBER, "minimum": 0, "maximum": 1}
_STAGE: dict[str, Schema] = {"temperature": TEMPERATURE, "top_k": TOP_K, "top_p": TOP_P}
_PRONUNCIATIONS: Schema = {
    "type": "object",
    "maxProperties": MAX_PRONUNCIATIONS,
    "propertyNames": {"maxLength": MAX_WORD_CHARS, "pattern": r"\S"},
    "additionalProperties": {
        "type": "string",
        "maxLength": MAX_RESPELLING_CHARS,
        "pattern": r"\S",
    },
}
_SECOND_STAGE = ("subtalker", "predictor")
"""Both prefixes name the code predictor: the checkpoint's word and ours."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the running server can speak with: the parts of the table that are not constant."""

    voices: tuple[str, ...]
    languages: tuple[str, ...]
    aliases: Voices
    models: Models
    max_chars: int
    instructable: bool
    """The checkpoint follows instructions; found out by asking it once."""
    stored: "OwnVoices | None" = None
    """Of the client that asks; None where the checkpoint speaks no stored voices."""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A checked request: the engine's part and the transport's."""

    submit: Submit
    response_format: str
    sse: bool
    live: bool
    speed: float = OWN
    """How many times as fast as the model speaks, at its own pitch."""

    @property
    def num_chars(self) -> int:
        """Characters that count against a key's limit."""
        return len(self.submit.text) + len(self.submit.instruct or "")


def control_fields(known: Known) -> dict[str, Schema]:
    """Return the fields HTTP and WebSocket share: voice, language, seed, sampling, limits."""
    names: dict[str, Any] = {"type": "string", "enum": known.aliases.names(known.voices)}
    if known.stored is not None:  # whose names are nobody else's business
        names = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS}
    voice_object = {
        "type": "object",
        "properties": {"id": names},
        "required": ["id"],
        "additionalProperties": False,
    }
    longest = MAX_INSTRUCTION_CHARS if known.instructable else 0
    text = {"type": "string", "maxLength": longest}
    fields: dict[str, Schema] = {
        "model": {"type": "string", "enum": list(known.models.names)},
        "voice": {"anyOf": [names, voice_object]},
        "language": {"type": "string", "enum": [AUTO, *known.languages]},
        "instructions": text,
        "instruct": text,
        "seed": {**_INTEGER, "minimum": 0, "maximum": MAX_SEED},
        "max_new_tokens": {**_INTEGER, "minimum": 1, "maximum": MAX_FRAMES},
        "non_streaming_mode": _FLAG,
        "normalize": _FLAG,
        "pronunciations": _PRONUNCIATIONS,
        "do_sample": _FLAG,
        "subtalker_dosample": _FLAG,
        **_STAGE,
        "repetition_penalty": {**_NUMBER, "minimum": 0.01, "maximum": 100},
    }
    for prefix in _SECOND_STAGE:
        fields |= {f"{prefix}_{name}": schema for name, schema in _STAGE.items()}
    return fields


def speech_schema(known: Known) -> Schema:
    """Return the JSON Schema of the body of POST /v1/audio/speech."""
    text = {"type": "string", "minLength": 1, "maxLength": known.max_chars, "pattern": r"\S"}
    return {
        "type": "object",
        "properties": {
            "input": text,
            **control_fields(known),
            "response_format": {"type": "string", "enum": list(FORMATS)},
            "speed": {**_NUMBER, "minimum": SLOWEST, "maximum": FASTEST},
            "stream_format": {"type": "string", "enum": ["audio", "sse"]},
            "stream": _FLAG,
        },
        "required": ["input"],
        "additionalProperties": False,
        "allOf": [{"not": each} for each in _contradictions()],
    }


def read_speech(body: dict[str, Any], known: Known, request_id: str) -> SpeechRequest:
    """Return the request in a body; raises Problem or an InputError that names the field."""
    given = check_object(body, _open_schema(known.max_chars))
    response_format = given.get("response_format", "mp3")
    sse = given.get("stream_format") == "sse"
    live = given.get("stream", sse or response_format == "pcm")
    if sse and not live:
        raise _contradiction("stream", "stream_format sse is a stream: drop stream=false")
    speed = float(given.get("speed", OWN))
    promised = live and speed <= OWN  # faster than real time is for spare rows
    submit = read_controls(
        given, known, request_id, text=given["input"], closed=True, live=promised
    )
    unread = replace(submit, word_times=False)  # no answer to this request holds word times
    return SpeechRequest(unread, response_format, sse, live, speed)


@lru_cache(maxsize=8)
def _open_schema(max_chars: int) -> Schema:
    """Return what a body is checked by; with open names nothing of it depends on the voices."""
    nobody = Known((), (), Voices({}), Models(None), max_chars, instructable=True)
    return open_names(speech_schema(nobody))


def read_controls(
    given: dict[str, Any], known: Known, request_id: str, *, text: str, closed: bool, live: bool
) -> Submit:
    """Return the engine's request of checked fields."""
    if "model" in given:
        known.models.check(given["model"])
    voice = given.get("voice")
    name = voice["id"] if isinstance(voice, dict) else voice
    return Submit(
        request_id=request_id,
        voice=known.aliases.resolve(name, known.voices, known.stored),
        language=check_language(given.get("language", AUTO), known.languages),
        instruct=_one_of(given, "instructions", "instruct"),
        text=text,
        closed=closed,
        text_mode="full" if given.get("non_streaming_mode") else "streaming",
        live=live,
        sampling=_sampling(given),
        seed=given.get("seed", 0),
        max_frames=given.get("max_new_tokens"),
        normalize=given.get("normalize", True),
        pronunciations=_pronunciations(given.get("pronunciations", {})),
    )


def open_names(schema: Schema) -> Schema:
    """Leave names that have an error of their own (404, unknown voice) to the code that knows."""
    fields = dict(schema["properties"])
    name = {"type": "string", "maxLength": 200}
    fields["model"] = fields["language"] = name
    choices: Sequence[Schema] = fields["voice"]["anyOf"]
    fields["voice"] = {"anyOf": [name, {**choices[1], "properties": {"id": name}}]}
    for each in ("instructions", "instruct"):  # the engine's own words say why it can't
        fields[each] = {"type": "string", "maxLength": MAX_INSTRUCTION_CHARS}
    return {**schema, "properties": fields}


def _pronunciations(given: dict[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = tuple(given.items())
    try:
        check_pronunciations(pairs)
    except InputError as error:
        raise Problem(400, error.code, str(error), param="pronunciations") from None
    return pairs


def _sampling(given: dict[str, Any]) -> Sampling:
    second = {name: _one_of(given, *(f"{p}_{name}" for p in _SECOND_STAGE)) for name in _STAGE}
    greedy, second_greedy = (
        given.get(flag) is False for flag in ("do_sample", "subtalker_dosample")
    )
    return Sampling(
        temperature=0.0 if greedy else given.get("temperature"),
        top_k=given.get("top_k"),
        top_p=given.get("top_p"),
        repetition_penalty=given.get("repetition_penalty"),
        predictor_temperature=0.0 if second_greedy else second["temperature"],
        predictor_top_k=second["top_k"],
        predictor_top_p=second["top_p"],
    )


def _one_of(given: dict[str, Any], first: str, second: str) -> Any:
    if first in given and second in given:
        raise _contradiction(second, f"{first} and {second} mean the same; send one")
    return given.get(first, given.get(second))


def _contradictions() -> list[Schema]:
    pairs = [("instructions", "instruct")]
    pairs += [(f"{_SECOND_STAGE[0]}_{name}", f"{_SECOND_STAGE[1]}_{name}") for name in _STAGE]
    file_events = {"stream": {"enum": [False]}, "stream_format": {"enum": ["sse"]}}
    both: list[Schema] = [{"required": list(pair)} for pair in pairs]
    return [*both, {"properties": file_events, "required": list(file_events)}]


def _contradiction(param: str, message: str) -> Problem:
    return Problem(400, "contradiction", message, param=param)

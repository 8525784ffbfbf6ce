"""TextRequest: what the attributes of a `playhead.text` stream ask for; pure."""

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from playhead.engine.errors import InputError
from playhead.engine.messages import Sampling, Submit
from playhead.engine.text.pronunciations import check_pronunciations

MAX_REQUEST_ID_CHARS = 128
_INTEGERS = frozenset({"seed", "max_frames", "top_k", "predictor_top_k"})
_SAMPLING = frozenset(field.name for field in fields(Sampling))
_WORDS = frozenset({"voice", "language", "instruct", "request_id", "mode", "text_mode"})
_SPEAKING = frozenset({"normalize", "pronunciations"})
KNOWN = _WORDS | _SPEAKING | _INTEGERS | _SAMPLING
_MODES = ("append", "interrupt")
_TEXT_MODES = ("streaming", "full")


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One request as a room asks for it; its text follows in the stream."""

    request_id: str
    submit: Submit
    cut: bool
    """Drop everything before it (mode=interrupt)."""


def request_id_of(attributes: Mapping[str, str], stream_id: str) -> str:
    """Return the room's name for the request: its own, else the stream's."""
    given = attributes.get("request_id", "")
    return given if 0 < len(given) <= MAX_REQUEST_ID_CHARS else stream_id


def read_request(attributes: Mapping[str, str], stream_id: str) -> TextRequest:
    """Read the attributes of a text stream; raises InputError that says what is wrong.

    Keys that start with `lk.` belong to LiveKit and are passed over; other unknown keys are
    refused, so a misspelt one is not silently without effect.
    """
    for key in attributes:
        if key not in KNOWN and not key.startswith("lk."):
            near = difflib.get_close_matches(key, KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(KNOWN))}"
            raise InputError(f"unknown attribute {key!r}{hint}")
    request_id = request_id_of(attributes, stream_id)
    numbers = {key: _number(key, attributes[key]) for key in attributes if key in _SAMPLING}
    submit = Submit(
        request_id=request_id,
        voice=attributes.get("voice") or None,
        language=attributes.get("language") or "auto",
        instruct=attributes.get("instruct") or None,
        text_mode="full"
        if _choice(attributes, "text_mode", _TEXT_MODES) == "full"
        else "streaming",
        sampling=Sampling(**numbers),  # type: ignore[arg-type]  # integers where they must be
        seed=_integer("seed", attributes.get("seed", "0")),
        max_frames=_integer("max_frames", attributes["max_frames"])
        if "max_frames" in attributes
        else None,
        normalize=_choice(attributes, "normalize", ("true", "false")) == "true",
        pronunciations=_pronunciations(attributes.get("pronunciations", "{}")),
    )
    return TextRequest(request_id, submit, _choice(attributes, "mode", _MODES) == "interrupt")


def _choice(attributes: Mapping[str, str], key: str, allowed: tuple[str, ...]) -> str:
    value = attributes.get(key, allowed[0])
    if value not in allowed:
        raise InputError(f"{key} is {value!r}, allowed is one of {', '.join(allowed)}")
    return value


def _pronunciations(text: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a JSON object of words and respellings."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
        raise InputError('pronunciations is no JSON object of strings, as in {"SQL": "sequel"}')
    pairs = tuple(given.items())
    check_pronunciations(pairs)
    return pairs


def _number(key: str, text: str) -> float | int:
    if key in _INTEGERS:
        return _integer(key, text)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{key} is {text[:40]!r}, allowed is a number")
    return value


def _integer(key: str, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**63:
        raise InputError(f"{key} is {text[:40]!r}, allowed is a whole number from 0")
    return value

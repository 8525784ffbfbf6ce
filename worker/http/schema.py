"""A small part of JSON Schema: checks bodies and messages against what openapi.json publishes.

Pure. One table serves the check and the document, so the two cannot differ.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from playhead.worker.http.problem import Problem

Schema = Mapping[str, Any]
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "number": (int, float),
    "object": (dict,),
}
CODE = "invalid_request"
_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_object(data: bytes | str) -> dict[str, Any]:
    """Return the JSON object in `data`; raises Problem 400."""
    try:
        body = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)[:80]
        raise Problem(400, "invalid_json", f"the body is no JSON: {reason}") from None
    if not isinstance(body, dict):
        raise Problem(400, "invalid_json", f"got a JSON {type(body).__name__}, allowed: an object")
    return body


def check_object(body: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Return `body` with whole numbers as int; raises Problem 400 that names the field."""
    fields: Mapping[str, Schema] = schema["properties"]
    for name in schema.get("required", ()):
        if name not in body:
            raise Problem(400, "missing_field", f"{name} is missing", param=name)
    checked: dict[str, Any] = {}
    for name, value in body.items():
        if name not in fields:
            known = ", ".join(fields)
            shown = name[:40].encode("ascii", "backslashreplace").decode()
            raise Problem(
                400, "unknown_field", f"unknown field {shown}; allowed: {known}", param=shown
            )
        checked[name] = _check(name, value, fields[name])
    return checked


def _check(name: str, value: Any, schema: Schema) -> Any:
    if "anyOf" in schema:
        return _check_any(name, value, schema["anyOf"])
    kind = schema["type"]
    if kind == "integer":
        value = _integer(name, value)
    elif not isinstance(value, _KINDS[kind]) or (kind == "number" and isinstance(value, bool)):
        raise _wrong(name, type(value).__name__, kind)
    if kind == "object":
        return check_object(value, schema) if "properties" in schema else _map(name, value, schema)
    if kind == "string":
        _check_string(name, value, schema)
    if kind in ("integer", "number"):
        _check_range(name, value, schema)
    if "enum" in schema and value not in schema["enum"]:
        raise _wrong(name, "another value", ", ".join(map(str, schema["enum"])))
    return value


def _map(name: str, value: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Check an object whose keys the caller chooses; their length is left to its own reader."""
    if len(value) > schema["maxProperties"]:
        message = f"{name} has {len(value)} entries, most are {schema['maxProperties']}"
        raise Problem(400, CODE, message, param=name)
    return {key: _check(name, each, schema["additionalProperties"]) for key, each in value.items()}


def _check_any(name: str, value: Any, choices: list[Schema]) -> Any:
    for choice in choices:
        if isinstance(value, _KINDS.get(choice["type"], ())):
            return _check(name, value, choice)
    raise _wrong(name, type(value).__name__, " or ".join(str(each["type"]) for each in choices))


def _integer(name: str, value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, type(value).__name__, "integer")
    return value


def _check_string(name: str, value: str, schema: Schema) -> None:
    longest, shortest = schema.get("maxLength"), schema.get("minLength", 0)
    if longest is not None and len(value) > longest:
        status, code = (413, "text_too_long") if name in ("input", "text") else (400, CODE)
        raise Problem(
            status, code, f"{name} has {len(value)} characters, most are {longest}", param=name
        )
    if len(value) < shortest or ("pattern" in schema and not re.search(schema["pattern"], value)):
        raise Problem(400, CODE, f"{name} holds nothing that could be used", param=name)
    if _SURROGATE.search(value):
        raise Problem(
            400, CODE, f"{name} holds half a surrogate pair, which is no text", param=name
        )


def _check_range(name: str, value: float, schema: Schema) -> None:
    low, high = schema.get("minimum"), schema.get("maximum")
    if (low is not None and value < low) or (high is not None and value > high):
        given = f"{value:g}" if abs(value) < 1e300 else "out of all range"
        raise Problem(400, CODE, f"{name} is {given}, allowed is {low} to {high}", param=name)


def _wrong(name: str, got: str, allowed: str) -> Problem:
    return Problem(400, CODE, f"{name}: got {got}, allowed: {allowed}", param=name)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number")

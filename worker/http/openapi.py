"""The OpenAPI document of the running server, from the same tables the checks use; pure."""

from typing import Any

from playhead.worker.http.fields import Known, speech_schema
from playhead.worker.http.formats import FORMAT_TABLE
from playhead.worker.http.messages import PROTOCOL
from playhead.worker.http.voices_route import MULTIPART, upload_schema

VERSION = "1"
Json = dict[str, Any]
_ERROR_NAMES = {
    400: "The request can't be spoken as given; `param` names the field.",
    401: "No key, or an unknown one.",
    403: "A web page of another origin asked.",
    404: "No such model, or no such voice.",
    408: "The body did not come in time.",
    409: "The key has another voice of that name, or the checkpoint clones none.",
    411: "The body has no Content-Length.",
    413: "The body or the text is too long.",
    415: "The body is of another media type.",
    422: "Well formed, but the checkpoint was not trained for it: instructions.",
    429: "A limit of this key; see Retry-After.",
    500: "The engine failed on this request.",
    503: "Not ready, busy or draining; see Retry-After.",
    504: "The voice was not made in time.",
}
_REQUEST_ID = {
    "X-Request-ID": {"description": "Names this request in logs.", "schema": {"type": "string"}}
}
_RETRY = {"Retry-After": {"description": "Whole seconds.", "schema": {"type": "integer"}}}
_NULLABLE = {"type": ["string", "null"]}


def document(known: Known, needs_key: bool) -> Json:
    """Return the document as JSON values."""
    secured: list[Json] = [{"bearer": []}] if needs_key else []
    paths = {
        "/v1/audio/speech": {"post": _speech(known)},
        "/v1/models": {"get": _get("List models.", "models", _list_of("Model"))},
        "/v1/models/{model}": {"get": _one_model()},
        "/v1/voices": {
            "get": _get("List voices and languages.", "voices", _voices(), 500),
            "post": _add_voice(),
        },
        "/v1/voices/{voice}": {"delete": _delete_voice()},
    }
    for operation in (each for path in paths.values() for each in path.values()):
        operation["security"] = secured
        operation["responses"] |= _errors(401, 403)
    open_pages = {
        "/health": {"get": _get("The process answers.", "health", _status())},
        "/ready": {"get": _get("New work is taken.", "ready", _status(), 503)},
        "/metrics": {"get": _metrics()},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "playhead speech", "version": VERSION},
        "paths": {**paths, **open_pages},
        "x-websocket": {"path": "/v1/audio/speech/ws", "subprotocol": PROTOCOL},
        "components": {
            "schemas": {"Error": _error_schema(), "Model": _model_schema()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _speech(known: Known) -> Json:
    audio: Json = {each.content_type: {"schema": {}} for each in FORMAT_TABLE.values()}
    audio["text/event-stream"] = {"schema": {"type": "string"}}
    headers = {
        **_REQUEST_ID,
        "X-Playhead-Stop": {
            "description": "Files only: why the speech ended, stop or length.",
            "required": False,
            "schema": {"type": "string", "enum": ["stop", "length"]},
        },
        "X-Playhead-Guard": {
            "description": "Files only: what ended speech that went on behind its text.",
            "required": False,
            "schema": {"type": "string", "enum": ["duration", "repetition", "silence"]},
        },
    }
    spoken = {"description": "The speech.", "content": audio, "headers": headers}
    return {
        "operationId": "createSpeech",
        "summary": "Speak a text: a file at full speed, or a stream at the pace of its listener.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": speech_schema(known)}},
        },
        "responses": {"200": spoken, **_errors(400, 404, 408, 413, 415, 422, 429, 500, 503)},
    }


def _one_model() -> Json:
    model = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    answer = _get("One model.", "model", {"$ref": "#/components/schemas/Model"}, 404)
    return {**answer, "parameters": [model]}


def _add_voice() -> Json:
    made = {"description": "The voice.", "headers": _REQUEST_ID}
    made["content"] = {"application/json": {"schema": _voice()}}
    return {
        "operationId": "createVoice",
        "summary": "Clone a voice from a recording, with its speaker's consent.",
        "requestBody": {"required": True, "content": {MULTIPART: {"schema": upload_schema()}}},
        "responses": {"201": made, **_errors(400, 408, 409, 411, 413, 415, 429, 500, 503, 504)},
    }


def _delete_voice() -> Json:
    name = {"name": "voice", "in": "path", "required": True, "schema": {"type": "string"}}
    gone = {"id": {"type": "string"}, "deleted": {"type": "boolean"}}
    shape = {"type": "object", "properties": gone, "required": list(gone)}
    return {**_get("Forget a voice.", "deleteVoice", shape, 404, 500), "parameters": [name]}


def _metrics() -> Json:
    page = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "operationId": "metrics",
        "summary": "Counters as Prometheus text.",
        "responses": {"200": {"description": "The page.", "content": page, "headers": _REQUEST_ID}},
    }


def _get(summary: str, name: str, schema: Json, *errors: int) -> Json:
    answer = {"application/json": {"schema": schema}}
    done = {"description": summary, "content": answer, "headers": _REQUEST_ID}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": done, **_errors(*errors)},
    }


def _errors(*statuses: int) -> Json:
    shape = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        str(status): {
            "description": _ERROR_NAMES[status],
            "content": shape,
            "headers": {**_REQUEST_ID, **(_RETRY if status in (429, 503) else {})},
        }
        for status in statuses
    }


def _error_schema() -> Json:
    fields: Json = {"message": {"type": "string"}, "type": {"type": "string"}}
    fields |= {"code": {"type": "string"}, "param": _NULLABLE}
    inner = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "object", "properties": {"error": inner}, "required": ["error"]}


def _model_schema() -> Json:
    fields: Json = {name: {"type": "string"} for name in ("id", "object", "owned_by")}
    fields["created"] = {"type": "integer"}
    return {"type": "object", "properties": fields, "required": list(fields)}


def _list_of(name: str) -> Json:
    items = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
    fields: Json = {"object": {"type": "string"}, "data": items}
    return {"type": "object", "properties": fields, "required": list(fields)}


def _voice() -> Json:
    fields: Json = {"id": {"type": "string"}, "alias_of": _NULLABLE}
    fields["kind"] = {"type": "string", "enum": ["preset", "clone", "shared"]}
    own: Json = {"created_at": {"type": "integer"}, "reference_s": {"type": "number"}}
    own |= {"in_context": {"type": "boolean"}, "consent": {"type": "string"}}
    own["warnings"] = {"type": "array", "items": {"type": "string"}}
    return {"type": "object", "properties": fields | own, "required": list(fields)}


def _voices() -> Json:
    names = {"type": "array", "items": {"type": "string"}}
    fields: Json = {"data": {"type": "array", "items": _voice()}, "languages": names}
    return {"type": "object", "properties": fields, "required": list(fields)}


def _status() -> Json:
    fields = {"status": {"type": "string"}, "load": {"type": "number"}}
    return {"type": "object", "properties": fields, "required": ["status"]}

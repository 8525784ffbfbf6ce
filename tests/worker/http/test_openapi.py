"""The OpenAPI document holds against the running server, field by field."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.bench.fuzz import schemathesis
from tests.worker.http.conftest import Launcher, Served, end

pytestmark = pytest.mark.slow

PATH = "/v1/audio/speech"
BASE = {"input": "Hi.", "response_format": "pcm", "stream": False, "max_new_tokens": 2}
Schema = dict[str, Any]


@pytest.fixture(scope="module")
def document(open_server: Served) -> Any:
    return httpx.get(f"{open_server.url}/openapi.json").json()


@pytest.fixture(scope="module")
def fields(document: Any) -> dict[str, Schema]:
    operation = document["paths"][PATH]["post"]
    found: dict[str, Schema] = operation["requestBody"]["content"]["application/json"]["schema"]
    return found["properties"]


def allowed(schema: Schema) -> Iterator[Any]:
    """Yield values at the edges of what a schema allows."""
    for choice in schema.get("anyOf", ()):
        yield from allowed(choice)
    yield from schema.get("enum", ())
    yield from (schema[end] for end in ("minimum", "maximum") if end in schema)
    if schema.get("type") == "boolean":
        yield from (True, False)
    if "properties" in schema:
        yield {name: next(allowed(each)) for name, each in schema["properties"].items()}
    elif schema.get("type") == "object":
        yield from ({}, {"a": "b"})


def forbidden(schema: Schema) -> Iterator[Any]:
    """Yield values just outside."""
    yield from (None, [], {"a": 1})
    if "anyOf" not in schema and schema["type"] != "string":
        yield "text"
    if schema.get("type") != "boolean":
        yield True
    if "minimum" in schema:
        yield from (schema["minimum"] - 1, schema["maximum"] + 1)
    if schema.get("type") == "integer":
        yield 1.5
    if "enum" in schema or "anyOf" in schema:
        yield "no such thing"


def test_what_the_document_allows_is_spoken(open_server: Served, fields: dict[str, Schema]) -> None:
    tried = 0
    for name, schema in fields.items():
        values = [BASE["input"]] if name == "input" else list(allowed(schema))[:4]
        for value in values:
            body = {**BASE, name: value}
            if name in ("stream", "stream_format"):
                body.pop("stream" if name == "stream_format" else "stream_format", None)
            body["max_new_tokens"] = 2
            answer = httpx.post(f"{open_server.url}{PATH}", json=body, timeout=30)
            assert answer.status_code == 200, (name, value, answer.text)
            tried += 1
    assert tried > 40


def test_what_it_forbids_is_refused_by_name(open_server: Served, fields: dict[str, Schema]) -> None:
    with httpx.Client(base_url=open_server.url) as client:
        for name, schema in fields.items():
            for value in forbidden(schema):
                answer = client.post(PATH, json={**BASE, name: value})
                assert answer.status_code in (400, 404, 413, 422), (name, value, answer.text)
                assert answer.json()["error"]["param"] in (name, "a", "id"), (name, value)


def test_every_answer_is_documented(open_server: Served, document: Any) -> None:
    paths = document["paths"]
    assert paths.keys() == {
        PATH,
        "/v1/models",
        "/v1/models/{model}",
        "/v1/voices",
        "/v1/voices/{voice}",
        "/health",
        "/ready",
        "/metrics",
    }
    with httpx.Client(base_url=open_server.url) as client:
        for path, operations in paths.items():
            for method, operation in operations.items():
                answer = client.request(method, path.replace("{model}", "tts-1"))
                told = operation["responses"][str(answer.status_code)]["content"]
                assert answer.headers["content-type"].split(";")[0] in told, path


@pytest.mark.slow
def test_schemathesis_finds_nothing(launcher: Launcher) -> None:
    served = launcher.ready(launcher.begin("fuzzed", "--carrier", "threads", "--max-chars", "20"))
    made, failures, report = schemathesis(served.url, max_examples=4, limit_s=120)
    end(served)
    assert failures == 0, report[-6000:]
    assert made > 150

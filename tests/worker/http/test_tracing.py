"""Traces of real requests, as a collector gets them; and nothing at all without one."""

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from playhead.worker.tracing import Traces
from tests.worker.http.conftest import Launcher, end


class Collector(HTTPServer):
    """Keeps every span it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    def spans(self) -> list[Any]:
        found: list[Any] = []
        for body in self.bodies:
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    found += scope.spans
        return found


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector) and self.path == "/v1/traces"
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.bodies.append(body)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_nothing_is_imported_until_an_address_is_given() -> None:
    code = (
        "import sys; from playhead.worker.tracing import Traces\n"
        "with Traces().utterance('a', True) as traced: traced.audio()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_span_ends_with_its_error_and_without_audio(collector: Collector) -> None:
    traces = Traces(f"http://127.0.0.1:{collector.server_port}")
    with pytest.raises(ValueError, match="secret"), traces.utterance("a", True):
        raise ValueError("secret words")
    traces.close()
    told = {span.name: span for span in collector.spans()}
    assert told.keys() == {"utterance", "first audio"}
    errors = {a.key: a.value.string_value for a in told["utterance"].attributes}
    assert errors["error.type"] == "ValueError"
    assert not any(b"secret" in body for body in collector.bodies)


@pytest.mark.slow
def test_each_utterance_has_a_span_and_its_first_audio_inside(
    launcher: Launcher, collector: Collector
) -> None:
    address = f"http://127.0.0.1:{collector.server_port}"
    served = launcher.ready(launcher.begin("traced", "--carrier", "threads", "--traces", address))
    ids = []
    for stream in (True, False):
        body = {"input": "Quixotic.", "response_format": "wav", "stream": stream}
        answer = httpx.post(f"{served.url}/v1/audio/speech", json=body, timeout=60)
        ids.append(answer.headers["x-request-id"])
    end(served)
    spans: list[Any] = collector.spans()
    whole = {}
    for span in spans:
        named = {a.key: a.value.string_value for a in span.attributes}
        if span.name == "utterance":
            whole[named["playhead.request_id"]] = span
    assert set(ids) <= whole.keys()
    for request_id in ids:
        outer = whole[request_id]
        (inner,) = [s for s in spans if s.parent_span_id == outer.span_id]
        begin = outer.start_time_unix_nano
        last = outer.end_time_unix_nano
        assert begin <= inner.start_time_unix_nano < inner.end_time_unix_nano <= last
    assert not any(b"Quixotic" in body for body in collector.bodies)

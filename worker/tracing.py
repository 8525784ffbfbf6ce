"""Traces: a span for each utterance of the HTTP service, sent to an OpenTelemetry collector.

Nothing is imported, and every call does nothing, until an address is given. Spans hold ids and
counts, never text.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

SERVICE = "playhead"


class Traced:
    """One utterance's span: from the request to its end, with the moment of the first audio."""

    def __init__(self, tracer: "Tracer | None", request_id: str, live: bool) -> None:
        """Begin now; without a tracer, nothing happens here."""
        self._span: Span | None = None
        self._first: Span | None = None
        if tracer is None:
            return
        from opentelemetry.trace import set_span_in_context

        attributes: dict[str, str | bool] = {
            "playhead.request_id": request_id,
            "playhead.live": live,
        }
        self._span = tracer.start_span("utterance", attributes=attributes)
        self._first = tracer.start_span("first audio", set_span_in_context(self._span))

    def audio(self) -> None:
        """Note that samples were handed over; ends the inner span at the first."""
        if self._first is not None:
            self._first.end()
            self._first = None

    def end(self, error: BaseException | None) -> None:
        """End the span; with the kind of error, if there was one."""
        if self._span is None:
            return
        if self._first is not None:
            self._first.set_attribute("playhead.none_came", True)
            self.audio()
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
        self._span.end()


class Traces:
    """Makes spans and sends them; off without an address."""

    def __init__(self, address: str | None = None) -> None:
        """`address` is a collector's, as http://host:4318; spans go to /v1/traces there."""
        self._provider: TracerProvider | None = None
        self._tracer: Tracer | None = None
        if address is None:
            return
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk import resources, trace
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = resources.Resource.create({"service.name": SERVICE})
        self._provider = trace.TracerProvider(resource=resource)
        exporter = OTLPSpanExporter(endpoint=f"{address.rstrip('/')}/v1/traces")
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(SERVICE)

    @contextlib.contextmanager
    def utterance(self, request_id: str, live: bool) -> Iterator[Traced]:
        """Trace one utterance meanwhile."""
        traced = Traced(self._tracer, request_id, live)
        try:
            yield traced
        except BaseException as error:
            traced.end(error)
            raise
        traced.end(None)

    def close(self) -> None:
        """Send what is left; blocks for some seconds at most."""
        if self._provider is not None:
            self._provider.shutdown()

"""OpenTelemetry spans of finished requests.

Needs the libraries of `lmi-handlers[tracing]`, which are imported only if spans are on.
"""

import time

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lmi_core.metrics.model_metrics import EndedRequest

SERVICE = "lmi-handlers"
FAILED = 400  # this status and those above are errors
NANOSECONDS = 1_000_000_000


class RequestTracer:
    """A writer of a span for each request, with two child spans for the engine: prefill and decode."""

    def __init__(self, processor: SpanProcessor) -> None:
        # As OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say, which come before the name here.
        self._provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer(SERVICE)
        self._propagator = TraceContextTextMapPropagator()
        self._epoch = time.time_ns() - time.perf_counter_ns()  # records have the time of no clock on a wall

    @classmethod
    def to(cls, endpoint: str) -> "RequestTracer":
        """Return a tracer that sends to an OTLP collector over HTTP, such as http://localhost:4318/v1/traces."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))

    def write(self, ended: EndedRequest) -> None:
        """Write the spans of a request, below its client's span, if any."""
        record = ended.record
        above = self._propagator.extract(ended.trace or {})
        span = self._tracer.start_span(
            ended.path, above, SpanKind.SERVER, _attributes(ended), start_time=self._at(record.begun)
        )
        if ended.status >= FAILED:
            span.set_status(Status(StatusCode.ERROR, ended.reason))
        below = trace.set_span_in_context(span)
        first, last = record.first_token, record.ended
        if record.scheduled is not None and first is not None:
            prefill = self._tracer.start_span("prefill", below, start_time=self._at(record.scheduled))
            prefill.end(self._at(first))
            if last is not None:
                decode = self._tracer.start_span("decode", below, start_time=self._at(first))
                decode.end(self._at(last))
        span.end(self._at(record.begun + ended.seconds))

    def close(self) -> None:
        """Send the remaining spans, which may take seconds."""
        self._provider.shutdown()

    def _at(self, moment: float) -> int:
        return self._epoch + int(moment * NANOSECONDS)


def _attributes(ended: EndedRequest) -> dict[str, str | int | float]:
    """Return a span's attributes, with OpenTelemetry's names if possible."""
    record = ended.record
    return {
        "http.response.status_code": ended.status,
        "gen_ai.request.model": record.model,
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.generated_tokens,
        "lmi.adapter": record.adapter,
        "lmi.dialect": record.dialect,
        "lmi.reason": ended.reason,
        "lmi.request_id": record.request_id,
        "lmi.queue_time": record.queue_time,
        "lmi.cached_tokens": record.cached_tokens,
    }

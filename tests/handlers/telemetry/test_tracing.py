"""Spans of requests, kept in memory, and sent to a collector over HTTP."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from lmi_handlers.telemetry.tracing import RequestTracer
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.lmi_process import lmi_serve

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{SPAN}-01", "x-request-id": "r1"}
PROMPT = {"inputs": "a few words", "parameters": {"max_new_tokens": 3}}


@pytest.fixture
async def server(model_dir: ModelDirectory, serve: Serve) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.scripted_delay=0.01\n"}))


@pytest.fixture
async def exporter(server: RunningServer) -> AsyncIterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    tracer = RequestTracer(SimpleSpanProcessor(exporter))
    server.dispatcher.metrics.observers.append(tracer.write)
    yield exporter
    tracer.close()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_a_request(server: RunningServer, exporter: InMemorySpanExporter) -> None:
    assert (await server.post("/invocations", PROMPT, headers=HEADERS)).status == 200
    assert (await server.get("/v1/models", headers=HEADERS)).status == 200  # which asks no model for anything
    spans = by_name(exporter)
    assert spans.keys() == {"/invocations", "prefill", "decode"}
    whole, prefill, decode = spans["/invocations"], spans["prefill"], spans["decode"]
    assert whole.parent is not None
    assert (f"{whole.context.trace_id:032x}", f"{whole.parent.span_id:016x}") == (TRACE, SPAN)
    for each in (prefill, decode):
        assert each.parent is not None
        assert each.parent.span_id == whole.context.span_id
    assert whole.attributes is not None
    assert dict(whole.attributes) | {"lmi.queue_time": 0.0} == {
        "http.response.status_code": 200,
        "gen_ai.request.model": "model",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 3,
        "lmi.adapter": "",
        "lmi.dialect": "lmi",
        "lmi.reason": "length",
        "lmi.request_id": "r1",
        "lmi.queue_time": 0.0,
        "lmi.cached_tokens": 0,
    }
    times = [whole.start_time, prefill.start_time, prefill.end_time, decode.end_time, whole.end_time]
    assert times == sorted(time for time in times if time is not None)
    assert prefill.end_time == decode.start_time
    assert whole.status.status_code is StatusCode.UNSET


async def test_a_request_that_fails_begins_a_trace_of_its_own(
    server: RunningServer, exporter: InMemorySpanExporter
) -> None:
    assert (await server.post("/predictions/nobody", PROMPT, headers={"traceparent": "nonsense"})).status == 404
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "model_not_found")
    exporter.clear()
    assert (await server.post("/v1/completions", {"prompt": {}})).status == 400
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is StatusCode.ERROR


async def test_a_collector(model_dir: ModelDirectory) -> None:
    received: asyncio.Queue[ExportTraceServiceRequest] = asyncio.Queue()

    async def take(request: web.Request) -> web.Response:
        assert request.path == "/v1/traces"
        received.put_nowait(ExportTraceServiceRequest.FromString(await request.read()))
        return web.Response()

    application = web.Application()
    application.router.add_post("/v1/traces", take)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    environment = {
        "SERVING_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{port}/v1/traces",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }
    directory = model_dir({"serving.properties": SCRIPTED})
    async with lmi_serve(directory, "--port", 0, environment=environment) as server:
        url = await server.ready()
        async with (
            aiohttp.ClientSession(url) as client,
            client.post("/invocations", json=PROMPT, headers=HEADERS) as answer,
        ):
            assert answer.status == 200
        server.process.terminate()  # sends what is left
        await server.process.communicate()
    (resource,) = received.get_nowait().resource_spans
    spans = [span for scope in resource.scope_spans for span in scope.spans]
    assert {span.name for span in spans} == {"/invocations", "prefill", "decode"}
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    await runner.cleanup()

"""What a request tells vLLM's KV connector, processors and tracer, and what they say."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.conftest import running_server
from tests.plugins.vllm_server import ONE_PROCESS, PROPERTIES, STORY, VllmServer, copy_hello

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

CONNECTOR = {
    "kv_connector": "EchoingConnector",
    "kv_connector_module_path": "tests.plugins.vllm_engine.requests.echoing_connector",
    "kv_role": "kv_both",
}
TEMPLATE = "{{ messages[-1].content }}"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": STORY}]},
    "/v1/completions": {"prompt": STORY},
}


@dataclass
class Collector:
    """A collector of spans, of OpenTelemetry's."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        self.spans += [each for spans in sent.resource_spans for scope in spans.scope_spans for each in scope.spans]
        return web.Response()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def collector() -> AsyncIterator[Collector]:
    collector, application = Collector(), web.Application()
    application.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1/traces"
    # vLLM leaves the first of these to the processes that it starts, and so to those that other tests start.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.url)
        patch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        yield collector
    await runner.cleanup()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connected(
    vllm_environment: None, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VllmServer]:
    properties = f"{PROPERTIES}{ONE_PROCESS}option.chat_template={TEMPLATE}\n"
    properties += f"option.kv_transfer_config={json.dumps(CONNECTOR)}\noption.otlp_traces_endpoint={collector.url}\n"
    directory = copy_hello(tmp_path_factory.mktemp("connected") / "hello", properties)
    async with running_server(directory) as server:
        yield VllmServer(server)


@pytest.mark.parametrize("path", BODIES)
async def test_what_the_connector_is_told_and_says(connected: VllmServer, path: str) -> None:
    told = {"do_remote_decode": True, "remote_engine_id": None, "ports": [1, {"a": 2.5}]}
    asked: dict[str, Any] = {
        "kv_transfer_params": told | {"prompt_token_ids": [1, 2, 3]},  # which is rendered and tokenized here
        "ec_transfer_params": {"peer": "a"},
        "vllm_xargs": {"mine": [1, "two", 0.5], "other": "x"},
        "no_repeat_ngram_size": 3,
    }
    plain = (await connected.server.post(path, BODIES[path] | {"max_tokens": 3, "temperature": 0})).json()
    answer = (await connected.server.post(path, BODIES[path] | {"max_tokens": 3, "temperature": 0} | asked)).json()
    extra = {"kv_transfer_params": told, "ec_transfer_params": {"peer": "a"}, "no_repeat_ngram_size": 3}
    said = {"told": told, "extra_args": asked["vllm_xargs"] | extra}
    assert answer["kv_transfer_params"] == said
    assert answer["usage"] == plain["usage"]
    assert plain["kv_transfer_params"] is None


@pytest.mark.parametrize("path", BODIES)
async def test_streams_have_no_place_for_what_it_says(connected: VllmServer, path: str) -> None:
    asked = {"kv_transfer_params": {"do_remote_prefill": False}, "stream": True, "max_tokens": 3}
    answer = await connected.server.post(path, BODIES[path] | asked)
    assert answer.status == 200
    assert b"kv_transfer_params" not in answer.body
    assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_each_prompt_and_sequence_tells_it(connected: VllmServer) -> None:
    asked = {"prompt": [STORY, "Hi"], "n": 2, "kv_transfer_params": {"a": 1}, "max_tokens": 2}
    answer = await connected.server.post("/v1/completions", asked)
    assert answer.json()["kv_transfer_params"]["told"] == {"a": 1}
    assert len(answer.json()["choices"]) == 4


async def test_parameters_of_lmis_own_requests(connected: VllmServer) -> None:
    asked = {"vllm_xargs": {"mine": 1}, "kv_transfer_params": {"a": 1}}
    answer = await connected.ask(STORY, max_new_tokens=2, vllm_fields=asked)
    assert answer["details"]["generated_tokens"] == 2


async def test_a_span_of_vllm_belongs_to_the_trace_of_the_request(connected: VllmServer, collector: Collector) -> None:
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    headers = {"traceparent": f"00-{trace}-{parent}-01"}
    body = {"inputs": STORY, "parameters": {"max_new_tokens": 5}}
    assert (await connected.server.post("/invocations", body, headers=headers)).status == 200
    assert (await connected.server.post("/invocations", body)).status == 200  # which begins a trace of its own
    async with asyncio.timeout(60):
        while not (found := [each for each in collector.spans if each.trace_id.hex() == trace]):
            await asyncio.sleep(0.05)
    (span,) = found
    assert (span.name, span.parent_span_id.hex()) == ("llm_request", parent)
    attributes = {each.key: each.value for each in span.attributes}
    assert attributes["gen_ai.usage.completion_tokens"].int_value == 5

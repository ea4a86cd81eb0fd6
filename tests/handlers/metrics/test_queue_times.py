"""Queue times in metrics, in DJLServing's metrics and in spans, compared with what clients and engines measure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.hookspecs import hookimpl
from lmi_core.metrics.model_metrics import ModelMetrics
from lmi_core.text_backend.backend import TextBackend
from lmi_handlers.telemetry.tracing import RequestTracer
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.metrics.test_metrics import duration_by_parts, scrape, value
from tests.plugins.vllm_server import copy_hello

REQUESTS = 18
WORK = 0.1  # seconds for each request
TOLERANCE = 0.15  # of the sum of all waits
FUNCTION = f"""\
import time
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    begun = time.perf_counter()
    time.sleep({WORK})
    return Output().add_as_json({{"begun": begun}})
"""


class SlowBackend(TextBackend[Any]):
    """An engine with as many places as its option, which answers with the time when it started."""

    name = "slow"
    parameters_type = ExtendedParameters

    async def start(self) -> None:
        self.begun: list[float] = []

    async def generate(self, prompt: str, parameters: Any) -> AsyncIterator[str]:
        self.begun.append(perf_counter())
        await asyncio.sleep(WORK)
        yield "done"


class Plugin:
    @hookimpl
    def lmi_register_backends(self, register: Any) -> None:
        register(SlowBackend)


async def check_waits(server: RunningServer, ask: Callable[[], Awaitable[float]]) -> None:
    """Send all requests at once, and compare every queue time with the waits that `ask` measures."""
    await ask()  # the first one is slower
    server.model.metrics = ModelMetrics()
    exporter = InMemorySpanExporter()
    tracer = RequestTracer(SimpleSpanProcessor(exporter))
    server.dispatcher.metrics.observers.append(tracer.write)
    waits = sorted(await asyncio.gather(*[ask() for _ in range(REQUESTS)]))
    tracer.close()
    families = await scrape(server)
    margin = TOLERANCE * sum(waits)
    assert value(families, "lmi_queue_time_seconds_count") == REQUESTS
    assert value(families, "lmi_queue_time_seconds_sum") == pytest.approx(sum(waits), abs=margin)
    spans = [span for span in exporter.get_finished_spans() if span.name == "/invocations"]
    found = sorted(float(str((span.attributes or {})["lmi.queue_time"])) for span in spans)
    assert found == pytest.approx(waits, abs=margin / 4)
    assert found[-4] - 1e-6 <= value(families, "QueueTime") / 1e6 <= found[-1] + 1e-6  # of the last one to end
    assert duration_by_parts(families) == pytest.approx(value(families, "lmi_request_duration_seconds_sum"))
    assert value(families, "lmi_engine_time_seconds_total") < sum(waits)  # the wait is no work


async def test_an_engine_with_two_places(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = "option.rolling_batch=slow\noption.max_rolling_batch_size=2\n"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[Plugin()])
    backend = server.model.backend
    assert isinstance(backend, SlowBackend)
    asked = []

    async def ask() -> float:
        asked.append(perf_counter())
        place = len(asked) - 1  # one client's requests start in order of arrival
        assert (await server.post("/invocations", {"inputs": "x"})).status == 200
        return backend.begun[place] - asked[place]

    await check_waits(server, ask)


async def test_a_model_function_with_two_workers(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": "minWorkers=2\nmaxWorkers=2\n", "model.py": FUNCTION}))

    async def ask() -> float:
        asked = perf_counter()
        answer = await server.post("/invocations", {"inputs": "x"})
        return float(answer.json()["begun"]) - asked  # by the same clock in every process

    await check_waits(server, ask)


@pytest.mark.torch
async def test_the_torch_engine_with_two_places(serve: Serve, tmp_path: Path) -> None:
    properties = "option.rolling_batch=torch\noption.max_rolling_batch_size=2\n"
    server = await serve(copy_hello(tmp_path / "hello", properties))
    body = {"inputs": "x", "stream": True, "parameters": {"max_new_tokens": 20, "ignore_eos_token": True}}

    async def ask() -> float:
        """Return the time to the first token, which is a wait but for a few milliseconds."""
        asked = perf_counter()
        async with server.client.post("/invocations", data=orjson.dumps(body)) as answer:
            await answer.content.readline()
            first = perf_counter()
            await answer.read()
        return first - asked

    await check_waits(server, ask)

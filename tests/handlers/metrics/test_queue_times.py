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
SECONDS = 100  # for all of them to arrive
WORK = 0.1  # seconds for each request
TOLERANCE = 0.15  # of the sum of all waits
FUNCTION = f"""\
import os, time
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    begun = time.perf_counter()
    while not os.path.exists(inputs.get_as_json()["until"]):
        time.sleep(0.01)
    time.sleep({WORK})
    return Output().add_as_json({{"begun": begun, "ended": time.perf_counter()}})
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


async def queue_times(server: RunningServer, asking: Awaitable[object]) -> list[float]:
    """Wait until all requests are answered, and return their queue times, on which all sources agree, sorted."""
    server.model.metrics = ModelMetrics()
    exporter = InMemorySpanExporter()
    tracer = RequestTracer(SimpleSpanProcessor(exporter))
    server.dispatcher.metrics.observers.append(tracer.write)
    await asking
    tracer.close()
    families = await scrape(server)
    spans = [span for span in exporter.get_finished_spans() if span.name == "/invocations"]
    found = sorted(float(str((span.attributes or {})["lmi.queue_time"])) for span in spans)
    assert value(families, "lmi_queue_time_seconds_count") == len(found) == REQUESTS
    assert value(families, "lmi_queue_time_seconds_sum") == pytest.approx(sum(found))
    assert min(abs(value(families, "QueueTime") / 1e6 - each) for each in found) <= 1e-6  # of the last one to end
    assert duration_by_parts(families) == pytest.approx(value(families, "lmi_request_duration_seconds_sum"))
    assert value(families, "lmi_engine_time_seconds_total") < sum(found)  # the wait is no work
    return found


async def check_waits(server: RunningServer, ask: Callable[[], Awaitable[float]]) -> None:
    """Send all requests at once, and compare every queue time with the waits that `ask` measures."""
    await ask()  # the first one is slower
    asking = asyncio.gather(*[ask() for _ in range(REQUESTS)])
    found = await queue_times(server, asking)
    assert found == pytest.approx(sorted(asking.result()), abs=TOLERANCE * sum(found) / 4)


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


async def test_a_model_function_with_two_workers(serve: Serve, model_dir: ModelDirectory, tmp_path: Path) -> None:
    """The bounds of each queue time hold however slow the machine is: all processes have the same clock."""
    server = await serve(model_dir({"serving.properties": "minWorkers=2\nmaxWorkers=2\n", "model.py": FUNCTION}))
    held = tmp_path / "held"
    ended, longest = list[float](), list[float]()

    async def ask() -> None:
        asked = perf_counter()
        answer = (await server.post("/invocations", {"until": str(held)})).json()
        ended.append(answer["ended"])
        longest.append(answer["begun"] - asked)

    async def ask_all() -> float:
        """Return the time when all requests had arrived, and the function answered none of them."""
        asking = [asyncio.create_task(ask()) for _ in range(REQUESTS)]
        async with asyncio.timeout(SECONDS):
            while server.model.sequence_counts != (2, REQUESTS - 2):
                await asyncio.sleep(0.01)
        arrived = perf_counter()
        held.touch()
        await asyncio.gather(*asking)
        return arrived

    asking = asyncio.create_task(ask_all())
    found = await queue_times(server, asking)
    # Two requests begin at once, each other one when one has ended.
    shortest = [0.0, 0.0, *(each - asking.result() for each in sorted(ended)[: REQUESTS - 2])]
    assert all(least <= each <= most for least, each, most in zip(shortest, found, sorted(longest), strict=True)), (
        f"{shortest} <= {found} <= {longest}"
    )
    assert found[-1] >= (REQUESTS // 2 - 1) * WORK


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

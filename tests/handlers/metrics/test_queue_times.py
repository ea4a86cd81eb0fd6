"""Queue times in metrics, in DJLServing's metrics and in spans, compared with what clients and engines measure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from time import perf_counter, time
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
Times = tuple[float, float, float]  # when the client asked, and when the engine began and ended
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
    """An engine with as many places as its option, which answers with the times when it began and ended."""

    name = "slow"
    parameters_type = ExtendedParameters

    async def start(self) -> None:
        self.may_work = asyncio.Event()

    async def generate(self, prompt: str, parameters: Any) -> AsyncIterator[str]:
        begun = perf_counter()
        await self.may_work.wait()
        await asyncio.sleep(WORK)
        yield f"{begun} {perf_counter()}"


class Plugin:
    @hookimpl
    def lmi_register_backends(self, register: Any) -> None:
        register(SlowBackend)


async def queue_times(server: RunningServer, asking: Awaitable[object]) -> tuple[list[float], list[float]]:
    """Wait until all requests are answered, and return their queue times, on which all sources agree, and arrivals.

    Both are sorted; requests of one client start in order of arrival.
    """
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
    since = time() - perf_counter()
    return found, sorted((span.start_time or 0) / 1e9 - since for span in spans)


async def check_bounds(
    server: RunningServer, ask: Callable[[], Coroutine[Any, Any, Times]], release: Callable[[], None]
) -> None:
    """Compare every queue time with its bounds, which hold however slow the machine is: all clocks are the same.

    The engine, which has two places, answers no request until it is released.
    """

    async def ask_all() -> tuple[float, list[Times]]:
        asking = [asyncio.create_task(ask()) for _ in range(REQUESTS)]
        async with asyncio.timeout(SECONDS):
            while sum(server.model.sequence_counts) < REQUESTS:
                await asyncio.sleep(0.01)
        arrived = perf_counter()
        release()
        return arrived, await asyncio.gather(*asking)

    asking = asyncio.create_task(ask_all())
    found, _ = await queue_times(server, asking)
    arrived, times = asking.result()
    longest = sorted(begun - asked for asked, begun, _ in times)
    # Two requests begin at once, each other one when one has ended.
    shortest = [0.0, 0.0, *(ended - arrived for ended in sorted(ended for *_, ended in times)[: REQUESTS - 2])]
    assert all(least <= each <= most for least, each, most in zip(shortest, found, longest, strict=True)), (
        f"{shortest} <= {found} <= {longest}"
    )
    assert found[-1] >= (REQUESTS // 2 - 1) * WORK


async def test_an_engine_with_two_places(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = "option.rolling_batch=slow\noption.max_rolling_batch_size=2\n"
    server = await serve(model_dir({"serving.properties": properties}), plugins=[Plugin()])
    backend = server.model.backend
    assert isinstance(backend, SlowBackend)

    async def ask() -> Times:
        asked = perf_counter()
        answer = (await server.post("/invocations", {"inputs": "x"})).json()
        begun, ended = answer["generated_text"].split()
        return asked, float(begun), float(ended)

    await check_bounds(server, ask, backend.may_work.set)


async def test_a_model_function_with_two_workers(serve: Serve, model_dir: ModelDirectory, tmp_path: Path) -> None:
    server = await serve(model_dir({"serving.properties": "minWorkers=2\nmaxWorkers=2\n", "model.py": FUNCTION}))
    held = tmp_path / "held"

    async def ask() -> Times:
        asked = perf_counter()
        answer = (await server.post("/invocations", {"until": str(held)})).json()
        return asked, answer["begun"], answer["ended"]

    await check_bounds(server, ask, held.touch)


@pytest.mark.torch
async def test_the_torch_engine_with_two_places(serve: Serve, tmp_path: Path) -> None:
    properties = "option.rolling_batch=torch\noption.max_rolling_batch_size=2\n"
    server = await serve(copy_hello(tmp_path / "hello", properties))
    body = {"inputs": "x", "stream": True, "parameters": {"max_new_tokens": 20, "ignore_eos_token": True}}

    async def ask() -> float:
        """Return the time of the first token, until when a request waits but for a few milliseconds."""
        async with server.client.post("/invocations", data=orjson.dumps(body)) as answer:
            await answer.content.readline()
            first = perf_counter()
            await answer.read()
        return first

    await ask()  # the first one is slower
    asking = asyncio.gather(*[ask() for _ in range(REQUESTS)])
    found, arrivals = await queue_times(server, asking)
    waits = [first - arrival for first, arrival in zip(sorted(asking.result()), arrivals, strict=True)]
    assert found == pytest.approx(sorted(waits), abs=TOLERANCE * sum(found) / 4)

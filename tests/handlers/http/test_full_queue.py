"""Routes that generate nothing take no place in the queue: they answer while it is full."""

import asyncio
import re

import pytest

from lmi_core.plugins.loading import load_plugins
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve

FULL = SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1\noption.enable_tokenizer_info_endpoint=true\n"
READING = sorted(
    {
        route.path
        for handler in load_plugins().handlers
        for route in handler.routes
        if route.method == "GET" and route.answer is not None
    }
    | {"/ping", "/openapi.json"}
)
MUST_ANSWER = {"/info", "/v1/info", "/v1/models", "/health", "/metrics", "/server/metrics", "/readiness", "/api/tags"}


async def test_every_reading_route(serve: Serve, model_dir: ModelDirectory) -> None:
    assert set(READING) >= MUST_ANSWER
    server = await serve(model_dir({"serving.properties": FULL}))
    before = {path: (await server.get(_filled(path))).status for path in READING}
    held = [Script("one", hold=True) for _ in range(2)]
    server.scripted.enqueue(*held)
    running = [asyncio.create_task(server.post("/invocations", {"inputs": "x"})) for _ in held]
    await asyncio.gather(*(script.started.wait() for script in held))
    assert (await server.post("/invocations", {"inputs": "y"})).status == 503
    during = {path: (await server.get(_filled(path))).status for path in READING}
    assert during == before
    assert {path: status for path, status in during.items() if path in MUST_ANSWER and status != 200} == {}
    assert 503 not in during.values()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@pytest.mark.parametrize("path", ["/info", "/v1/info"])
async def test_a_model_that_loads_is_not_described(serve: Serve, model_dir: ModelDirectory, path: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    server.model.ready = False
    assert (await server.get(path)).status == 503


def _filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "model", path)

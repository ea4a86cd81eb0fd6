"""A full queue: its number of places, and routes that generate nothing, which take none and answer meanwhile."""

import asyncio
import os
import re

import pytest

from lmi_core.plugins.loading import load_plugins
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve

FULL = SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1\noption.enable_tokenizer_info_endpoint=true\n"
BLOCKED = """\
import os
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    with open(os.path.join(inputs.get_properties()["model_dir"], "gate"), "rb", buffering=0) as gate:
        gate.read(1)
    return Output().add_as_json({"done": True})
"""
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


@pytest.mark.parametrize(("options", "places"), [("", 2), ("maxWorkers=3\n", 4)])
async def test_places_of_a_model_function(serve: Serve, model_dir: ModelDirectory, options: str, places: int) -> None:
    directory = model_dir({"serving.properties": f"job_queue_size=1\n{options}", "model.py": BLOCKED})
    os.mkfifo(directory / "gate")
    server = await serve(directory)
    requests = {asyncio.create_task(server.post("/invocations", {"inputs": "x"})) for _ in range(6)}
    answers = []
    for next_answer in asyncio.as_completed(requests):
        answers.append((await next_answer).status)
        if len(answers) == 6 - places:
            gate = os.open(directory / "gate", os.O_RDWR)
            os.write(gate, b"1" * places)
    os.close(gate)
    assert answers == [503] * (6 - places) + [200] * places


@pytest.mark.parametrize("path", ["/info", "/v1/info"])
async def test_a_model_that_loads_is_not_described(serve: Serve, model_dir: ModelDirectory, path: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    server.model.ready = False
    assert (await server.get(path)).status == 503


def _filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "model", path)

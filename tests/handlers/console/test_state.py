"""What the console asks for: the state of models, live counts of tokens, memory, and the latest errors."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lmi_core.registry.registration import Registration
from lmi_core.serving.model import Model
from lmi_handlers.console import handler
from lmi_handlers.process.front import UNCHANGEABLE, Front
from lmi_handlers.testing import running_server
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAILS = "option.rolling_batch=nothing\n"
SLOW_WORKER = """\
import os, time
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    while not os.path.exists(inputs.get_as_json()["until"]):
        time.sleep(0.01)
    return Output().add_as_json({"generated_text": "Hi"})
"""
SECRET = "sk-not-to-be-shown"
SECONDS = 60


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    store = tmp_path_factory.mktemp("store")
    for name, files in {
        "first": {"serving.properties": SCRIPTED, "adapters/french/model.py": ""},
        "function": {"model.py": SLOW_WORKER, "serving.properties": "minWorkers=2\nmaxWorkers=2\n"},
    }.items():
        for path, text in files.items():
            (store / name / path).parent.mkdir(parents=True, exist_ok=True)
            (store / name / path).write_text(text)
    async with running_server(store) as running:
        yield running


async def state(server: RunningServer) -> dict[str, Any]:
    answer = await server.get("/console/state")
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()
    return found


async def model_of(server: RunningServer, name: str, version: str | None = None) -> dict[str, Any] | None:
    models: list[dict[str, Any]] = (await state(server))["models"]
    return next((each for each in models if (each["modelName"], each.get("version")) == (name, version)), None)


async def errors(server: RunningServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await server.get("/console/errors")).json()["errors"]
    return found


async def until(server: RunningServer, name: str, expected: str) -> dict[str, Any]:
    """Wait until a model has this state, and return its description."""
    async with asyncio.timeout(SECONDS):
        while (found := await model_of(server, name)) is None or found["state"] != expected:
            await asyncio.sleep(0.02)
    return found


async def remove(server: RunningServer, name: str) -> int:
    """Remove a model, and return the status of the answer."""
    async with server.client.delete(f"/models/{name}") as response:
        return response.status


async def test_a_model_as_it_is(server: RunningServer) -> None:
    found = await model_of(server, "first")
    assert found is not None
    assert (found["state"], found["default"], found["backend"]) == ("ready", True, "scripted")
    assert (found["adapters"], found["loadedAtStartup"]) == (["french"], True)
    assert (found["workers"], found["memory"]) == ([], None)  # it runs in the server's own process
    assert found["loadedAt"] <= time.time()
    assert found["queueSize"] == server.dispatcher.models["first"].admission.maximum


async def test_workers_and_their_memory(server: RunningServer) -> None:
    found = await model_of(server, "function")
    assert found is not None
    assert len({worker["processId"] for worker in found["workers"]}) == 2
    memory = (await state(server))["memory"]
    assert 1 << 20 < found["memory"] < memory["server"]
    assert 0 < memory["main"]["free"] < memory["main"]["total"]


async def test_tokens_are_counted_while_they_come(server: RunningServer) -> None:
    backend: Any = server.dispatcher.models["first"].backend
    before = await model_of(server, "first")
    assert before is not None
    script = Script("One two three four", hold=True)
    backend.enqueue(script)
    body = {"inputs": "Hi", "stream": True}
    asking = asyncio.create_task(server.post("/predictions/first", body, headers={"x-request-id": "live"}))
    await script.started.wait()
    during = await model_of(server, "first")
    assert during is not None
    assert (during["running"], during["waiting"]) == (1, 0)
    assert during["requests"] == before["requests"]
    server.dispatcher.models["first"].running.abort("live")
    await asking
    after = await model_of(server, "first")
    assert after is not None
    assert [each["generatedTokens"] - before["generatedTokens"] for each in (during, after)] == [4, 4]
    assert during["promptTokens"] == after["promptTokens"] > before["promptTokens"]
    assert after["requests"] == before["requests"] + 1


async def test_requests_whose_clients_leave_have_not_failed(server: RunningServer) -> None:
    before = await model_of(server, "first")
    assert before is not None
    script = Script("One two", hold=True)
    backend: Any = server.dispatcher.models["first"].backend
    backend.enqueue(script)
    asking = asyncio.create_task(server.post("/predictions/first", {"inputs": "Hi"}))
    await script.started.wait()
    asking.cancel()
    assert (await server.post("/predictions/first", {"inputs": 5})).status == 424
    async with asyncio.timeout(SECONDS):
        while (after := await model_of(server, "first")) is None or after["requests"] < before["requests"] + 2:
            await asyncio.sleep(0.02)
    assert after["failedRequests"] == before["failedRequests"] + 1


async def test_what_waits_for_a_worker_does_not_run(server: RunningServer) -> None:
    held = str(server.dispatcher.models["function"].plan.directory / "held")
    asked = [asyncio.create_task(server.post("/predictions/function", {"until": held})) for _ in range(5)]
    async with asyncio.timeout(SECONDS):
        while (found := await model_of(server, "function")) is None or (found["running"], found["waiting"]) != (2, 3):
            await asyncio.sleep(0.02)
    scraped = (await server.get("/metrics?name[]=lmi_requests_running&name[]=lmi_requests_waiting")).body.decode()
    assert 'lmi_requests_running{model="function"} 2\n' in scraped
    assert 'lmi_requests_waiting{model="function"} 3\n' in scraped
    Path(held).touch()
    assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 5
    found = await model_of(server, "function")
    assert found is not None
    assert (found["running"], found["waiting"]) == (0, 0)


async def test_nothing_takes_a_place_in_the_queue_or_is_counted(server: RunningServer) -> None:
    model = server.dispatcher.models["first"]
    before = dict(server.dispatcher.metrics.statuses), model.admission.taken, model.usage.last
    await state(server)
    await errors(server)
    assert (dict(server.dispatcher.metrics.statuses), model.admission.taken, model.usage.last) == before


async def test_only_failures_are_logged(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lmi_handlers")
    await state(server)
    assert (await server.get("/console/state", headers={"Origin": "http://other.example"})).status == 403
    await server.get("/v1/models")
    lines = [record.getMessage().partition(": ")[2] for record in caplog.records if "/" in record.getMessage()]
    assert [line.partition(" ")[0] for line in lines if line.startswith("/")] == ["/console/state", "/v1/models"]


async def test_a_model_that_cannot_be_loaded(server: RunningServer, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": FAILS}, "wrong")
    assert (await server.post("/models", {"url": str(directory), "synchronous": False})).status == 202
    found = await until(server, "wrong", "failed")
    assert "`nothing`" in found["reason"]
    async with asyncio.timeout(SECONDS):
        while (newest := (await errors(server))[0])["model"] != "wrong":
            await asyncio.sleep(0.02)
    assert (newest["path"], newest["status"], newest["message"]) == ("/models", 400, found["reason"])
    assert await remove(server, "wrong") == 200
    assert await model_of(server, "wrong") is None


async def test_the_progress_of_loading(server: RunningServer, model_dir: ModelDirectory) -> None:
    directory, go_on = model_dir({"serving.properties": SCRIPTED}, "slow"), asyncio.Event()
    registry = server.dispatcher.registry
    reader = registry.reader
    assert reader is not None

    async def slowly(registration: Registration, report: Any) -> Model:
        report("copying", 250, 1000)
        await go_on.wait()
        return await reader(registration, report)

    registry.reader = slowly
    try:
        await server.post("/models", {"url": str(directory), "synchronous": False})
        found = await until(server, "slow", "fetching")
        assert found["progress"]["share"] == 0.25
        assert found["progress"]["what"].startswith("copying, 250 B of 1 kB")
        go_on.set()
        await until(server, "slow", "ready")
    finally:
        registry.reader = reader


async def test_a_model_that_leaves(server: RunningServer, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED}, "leaving")
    assert (await server.post("/models", {"url": str(directory)})).status == 200
    script = Script("One two", hold=True)
    backend: Any = server.dispatcher.models["leaving"].backend
    backend.enqueue(script)
    headers = {"x-request-id": "last"}
    asking = asyncio.create_task(server.post("/predictions/leaving", {"inputs": "Hi"}, headers=headers))
    await script.started.wait()
    model = server.dispatcher.models["leaving"]
    removing = asyncio.create_task(remove(server, "leaving"))
    found = await until(server, "leaving", "unloading")
    assert found["running"] == 1
    model.running.abort("last")
    assert (await asking).status == 200
    assert await removing == 200
    assert await model_of(server, "leaving") is None


async def test_versions(server: RunningServer, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED}, "other")
    for version in ("1", "2"):
        assert (await server.post("/models", {"url": str(directory), "model_version": version})).status == 200
    found = [await model_of(server, "other", version) for version in ("1", "2")]
    assert [each and each["default"] for each in found] == [True, False]


async def test_several_front_ends(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await state(server))["unchangeable"] is None
    monkeypatch.setattr(handler, "this_front", lambda: Front(0, 2))
    assert (await state(server))["unchangeable"] == UNCHANGEABLE


async def test_an_engine_that_is_not_well(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise RuntimeError("no power")

    monkeypatch.setattr(server.dispatcher.models["first"].runtime, "health", broken)
    found = await model_of(server, "first")
    assert found is not None
    assert found["state"] == "unhealthy"
    assert found["reason"].endswith("raised RuntimeError: no power")


async def test_errors_tell_neither_prompts_nor_keys(server: RunningServer) -> None:
    before = (await state(server))["latestError"]
    body = {"inputs": SECRET, "parameters": {"temperature": SECRET}}
    for _ in range(2):
        refused = await server.post("/predictions/first", body, headers={"x-request-id": "mine", "x-api-key": SECRET})
        assert refused.status == 424
    assert (await server.post("/predictions/none?key=" + SECRET, {"inputs": "Hi"})).status == 404
    assert (await server.post("/models", {"url": "/no/where"})).status == 404
    found = (await errors(server))[:3]
    assert [each["number"] for each in found] == [before + 4, before + 3, before + 2]
    assert [(each["model"], each["status"], each["count"], each["path"]) for each in found] == [
        ("", 404, 1, "/models"),
        ("", 404, 1, "/predictions/none"),
        ("first", 424, 2, "/predictions/first"),
    ]
    assert found[0]["message"].startswith("/no/where does not exist")
    assert found[2]["message"].startswith("`temperature` must be ")
    assert found[2]["requestId"] == "mine"
    assert abs(found[2]["time"] - time.time()) < SECONDS
    assert SECRET not in (await server.get("/console/errors")).body.decode()


async def test_an_error_in_a_stream(server: RunningServer) -> None:
    backend: Any = server.dispatcher.models["first"].backend
    backend.enqueue(Script("One two", error="the engine broke"))
    answer = await server.post("/v1/completions", {"model": "first", "prompt": "Hi", "stream": True})
    assert answer.status == 200
    newest = (await errors(server))[0]
    assert (newest["status"], newest["kind"], newest["ofServer"]) == (200, "generation_failed", True)
    assert "the engine broke" in newest["message"]

"""The routes that register, list, describe, change and remove models."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.management.asking import ask, describe, generated, register

HANDLE = """\
import os
from djl_python import Input, Output

def handle(inputs):
    if inputs.is_empty():
        return None
    return Output().add_as_json({"process": os.getpid()})
"""


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}, "first"))


@pytest.fixture
def second(model_dir: ModelDirectory, server: RunningServer) -> Path:
    """A further model directory, whose model answers `two`."""
    return model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text=two\n"}, "second")


async def test_model_comes_and_goes(server: RunningServer, second: Path) -> None:
    answer = await register(server, second)
    assert (answer.status, answer.json()) == (200, {"status": 'Model "second" registered.'})
    assert await generated(server, "/predictions/second") == "two"
    assert await generated(server, "/models/second/invoke") == "two"
    assert await generated(server, "/invocations", model="second") == "two"
    answer = await ask(server, "DELETE", "/models/second")
    assert (answer.status, answer.json()) == (200, {"status": 'Model or workflow "second" unregistered'})
    answer = await server.post("/predictions/second", {"inputs": "Hello"})
    assert (answer.status, answer.json()["error"]) == (404, "model `second` is not served. Served: first")
    assert (await ask(server, "GET", "/models/second")).status == 404
    assert await generated(server, "/invocations") != "two"  # the only model need not be named again


async def test_list_of_models_by_pages(server: RunningServer, second: Path) -> None:
    assert (await register(server, second, model_name="a")).status == 200
    assert (await register(server, second, model_name="z", model_version="7")).status == 200
    first = next(iter(server.dispatcher.models.values())).plan.directory
    ready = {"status": "READY", "state": "ready", "default": True}
    listed = [
        {"modelName": "a", "modelUrl": str(second), "loadedAtStartup": False, **ready},
        {"modelName": "first", "modelUrl": str(first), "loadedAtStartup": True, **ready},
        {"modelName": "z", "version": "7", "modelUrl": str(second), "loadedAtStartup": False, **ready},
    ]
    assert (await ask(server, "GET", "/models")).json() == {"models": listed}
    for given in ({"limit": -1}, {"next_page_token": ""}, {"limit": ""}):  # as DJLServing's clients send them
        assert (await ask(server, "GET", "/models", **given)).json() == {"models": listed}
    page = (await ask(server, "GET", "/models", limit=2, next_page_token=0)).json()
    assert page == {"models": listed[:2], "nextPageToken": "2"}
    workflows = (await ask(server, "GET", "/workflows", limit=2)).json()
    assert workflows == {"workflows": [{"workflowName": "a"}, {"workflowName": "first"}], "nextPageToken": "2"}
    workflows = (await ask(server, "GET", "/workflows", next_page_token=2)).json()
    assert workflows == {"workflows": [{"workflowName": "z", "version": "7"}]}
    page = (await ask(server, "GET", "/models", limit=2, next_page_token=page["nextPageToken"])).json()
    assert page == {"models": listed[2:]}
    answer = await ask(server, "GET", "/models", limit=0)
    assert (answer.status, answer.json()["error"]) == (
        400,
        "`limit` must be greater than or equal to 1. Given: '0'",
    )


async def test_queue_in_the_description(server: RunningServer) -> None:
    scripts = [Script("one", hold=True) for _ in range(2)]
    server.scripted.enqueue(*scripts)
    asked = [asyncio.create_task(generated(server, "/predictions/first")) for _ in scripts]
    for script in scripts:
        await script.started.wait()
    assert (await describe(server, "first"))["requestInQueue"] == 2
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_description(server: RunningServer, second: Path) -> None:
    assert (await register(server, second, job_queue_size=5, batch_size=2, max_batch_delay=7)).status == 200
    found = await describe(server, "second")
    (group,) = found.pop("workerGroups")
    (worker,) = group["workers"]
    assert worker.keys() == {"id", "startTime", "status", "processId"}
    assert (worker["status"], worker["processId"]) == ("READY", os.getpid())
    assert found == {
        "modelName": "second",
        "modelUrl": str(second),
        "batchSize": 2,
        "maxBatchDelayMillis": 7,
        "maxIdleSeconds": 60,
        "queueSize": 5,
        "requestInQueue": 0,
        "status": "Healthy",
        "loadedAtStartup": False,
        "state": "ready",
        "default": True,
        "servedNames": ["second"],
        "backend": "scripted",
        "adapters": [],
        "warnings": found["warnings"],
    }
    assert "batch_size=2 has no effect" in found["warnings"][0]


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ({}, 400, "`url` is required"),
        ({"url": "/nowhere"}, 404, "/nowhere does not exist: give the path of a model directory"),
        ({"url": "/", "model_name": ""}, 400, "`model_name` is required, because `url` contains no name. Given: /"),
        ({"url": "x", "model_name": "a/b"}, 400, "`model_name` must be printable, at most 255 characters long"),
        (
            {"url": "x", "min_workers": 1},
            400,
            "`min_workers` is not a field of this request. Did you mean `min_worker`?",
        ),
        ({"url": "x", "max_worker": "many"}, 400, "`max_worker` must be a valid integer"),
        (
            {"url": "x", "device": "nc1"},
            400,
            "`device` must be *, or cpu, or GPUs such as 0, gpu0 or cuda:0, separated by ;. Given: 'nc1'",
        ),
    ],
)
async def test_registration_that_is_refused(
    server: RunningServer, query: dict[str, object], status: int, error: str
) -> None:
    answer = await ask(server, "POST", "/models", **query)
    assert answer.status == status, answer.json()
    assert answer.json()["error"].startswith(error)
    assert [each["modelName"] for each in (await ask(server, "GET", "/models")).json()["models"]] == ["first"]


async def test_registration_of_a_name_that_is_taken(server: RunningServer, second: Path) -> None:
    answer = await register(server, second, model_name="first")
    assert (answer.status, answer.json()["error"]) == (
        409,
        "model `first` is registered already: unregister it first",
    )
    assert (await register(server, second, **{"option.served_model_name": "first"})).status == 409
    assert await generated(server, "/invocations") != "two"


async def test_asynchronous_registration_that_fails_tells_why(server: RunningServer, model_dir: ModelDirectory) -> None:
    wrong = model_dir({"serving.properties": "option.rolling_batch=nothing\n"}, "wrong")
    answer = await register(server, wrong, synchronous=False)
    assert (answer.status, answer.json()) == (202, {"status": 'Model "wrong" registration scheduled.'})
    loading = server.dispatcher.registry.find_registered("wrong").loading
    if loading is not None:
        await asyncio.wait([loading])
    found = await describe(server, "wrong")
    assert (found["status"], found["state"]) == ("FAILED", "failed")
    assert found["reason"].startswith("there is no backend `nothing`. Known: ")
    answer = await server.post("/predictions/wrong", {"inputs": "Hello"})
    assert (answer.status, answer.json()["error"]) == (503, f"model wrong could not be loaded: {found['reason']}")
    assert "Retry-After" not in answer.headers
    assert (await server.get("/ping")).status == 200
    (wrong / "serving.properties").write_text(SCRIPTED)
    assert (await register(server, wrong)).status == 200  # no longer in the way
    assert (await describe(server, "wrong"))["status"] == "Healthy"


class SlowBackend(ScriptedBackend):
    """A backend that loads until it is told to go on."""

    name = "slow"
    go_on: asyncio.Event
    stopped: list[str]

    async def start(self) -> None:
        await type(self).go_on.wait()

    async def stop(self) -> None:
        type(self).stopped.append(self.setup.directory.name)


@pytest.fixture
def slow(server: RunningServer, model_dir: ModelDirectory) -> Path:
    SlowBackend.go_on, SlowBackend.stopped = asyncio.Event(), []
    reader = server.dispatcher.registry.reader
    reader._plugins.backends.register(SlowBackend)  # type: ignore[union-attr]
    return model_dir({"serving.properties": "option.rolling_batch=slow\n"}, "slow")


async def test_model_that_loads_is_not_in_the_way(server: RunningServer, slow: Path) -> None:
    assert (await register(server, slow, synchronous=False)).status == 202
    async with asyncio.timeout(60):
        while (await describe(server, "slow"))["state"] != "loading":
            await asyncio.sleep(0)
    assert (await describe(server, "slow"))["status"] == "PENDING"
    answer = await server.post("/predictions/slow", {"inputs": "Hello"})
    assert (answer.status, answer.json()["error"].partition(":")[0]) == (503, "model slow is loading")
    assert answer.headers["Retry-After"] == "5"
    assert (await server.get("/ping")).status == 200
    assert (await server.post("/invocations", {"inputs": "Hello"})).status == 200  # the only one that is served
    assert (await register(server, slow)).status == 409
    SlowBackend.go_on.set()
    async with asyncio.timeout(60):
        while (await describe(server, "slow"))["state"] != "ready":
            await asyncio.sleep(0)
    assert (await server.post("/predictions/slow", {"inputs": "Hello"})).status == 200


async def test_removal_of_a_model_that_loads(server: RunningServer, slow: Path) -> None:
    assert (await register(server, slow, synchronous=False)).status == 202
    async with asyncio.timeout(60):
        while (await describe(server, "slow"))["state"] != "loading":
            await asyncio.sleep(0)
        assert (await ask(server, "DELETE", "/models/slow")).status == 200
    assert SlowBackend.stopped == ["slow"]
    assert (await ask(server, "GET", "/models/slow")).status == 404


async def test_removal_waits_for_requests(server: RunningServer, second: Path) -> None:
    await register(server, second)
    backend = server.dispatcher.find("second").backend
    assert isinstance(backend, ScriptedBackend)
    script = Script("slowly", hold=True)
    backend.enqueue(script)
    headers = {"x-request-id": "held"}
    request = asyncio.create_task(server.post("/predictions/second", {"inputs": "Hello"}, headers=headers))
    await script.started.wait()
    model = server.dispatcher.models["second"]
    removal = asyncio.create_task(ask(server, "DELETE", "/models/second"))
    async with asyncio.timeout(60):
        while "second" in server.dispatcher.models:
            await asyncio.sleep(0)
        assert not removal.done()
        assert (await server.post("/predictions/second", {"inputs": "Hello"})).status == 404
        assert model.running.abort("held")
        assert (await request).json()["generated_text"] == "slowly"
        assert (await removal).status == 200
    assert not model.ready


async def test_requests_that_outlive_the_removal_of_their_model_fail(server: RunningServer, second: Path) -> None:
    await register(server, second)
    server.dispatcher.registry.drain_seconds = 0
    backend = server.dispatcher.find("second").backend
    assert isinstance(backend, ScriptedBackend)
    backend.enqueue(script := Script("slowly", hold=True))
    request = asyncio.create_task(server.post("/predictions/second", {"inputs": "Hello"}))
    await script.started.wait()
    async with asyncio.timeout(60):
        assert (await ask(server, "DELETE", "/models/second")).status == 200
        assert (await request).status == 503
        await script.closed.wait()


async def test_versions(server: RunningServer, second: Path, model_dir: ModelDirectory) -> None:
    third = model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text=three\n"}, "third")
    assert (await register(server, second, model_name="m", model_version="1")).status == 200
    assert (await register(server, third, model_name="m", model_version="2")).status == 200
    assert (await register(server, third, model_name="m", model_version="2")).status == 409
    assert await generated(server, "/predictions/m") == "two"
    assert await generated(server, "/predictions/m/1") == "two"
    assert await generated(server, "/predictions/m/2") == "three"
    assert await generated(server, "/invocations", model="m:2") == "three"
    assert (await server.post("/predictions/m/3", {"inputs": "Hello"})).status == 404
    assert (await ask(server, "PUT", "/models/m/2", default=True)).status == 200
    assert await generated(server, "/predictions/m") == "three"
    states = (await ask(server, "GET", "/models")).json()["models"]
    assert [(each.get("version"), each["default"]) for each in states] == [(None, True), ("1", False), ("2", True)]
    assert len((await ask(server, "GET", "/models/m")).json()) == 2
    assert (await ask(server, "DELETE", "/models/m/2")).status == 200
    assert await generated(server, "/predictions/m") == "two"  # the one that is left
    assert (await ask(server, "DELETE", "/models/m")).status == 200
    assert (await ask(server, "GET", "/models/m")).status == 404


async def default_of(server: RunningServer, model: str) -> object:
    (default,) = [
        each["models"][0]
        for each in (await ask(server, "GET", f"/models/{model}")).json()
        if each["models"][0]["default"]
    ]
    return default["modelUrl"]


async def test_a_version_becomes_the_default_once_it_is_loaded(server: RunningServer, second: Path, slow: Path) -> None:
    assert (await register(server, second, model_name="m", model_version="1")).status == 200
    assert (await register(server, second, model_name="m", model_version="3")).status == 200
    begun = await register(server, slow, model_name="m", model_version="2", default=True, synchronous=False)
    assert begun.status == 202
    loading = server.dispatcher.registry.find_registered("m", "2").loading
    assert loading is not None
    assert await default_of(server, "m") == str(second)
    assert await generated(server, "/predictions/m") == "two"  # by version 1, as long as 2 loads
    SlowBackend.go_on.set()
    async with asyncio.timeout(60):
        await asyncio.wait([loading])
    assert await default_of(server, "m") == str(slow)
    assert await generated(server, "/predictions/m") != "two"
    assert (await ask(server, "PUT", "/models/m/3", default=True)).status == 200
    assert (await ask(server, "DELETE", "/models/m/3")).status == 200
    assert await default_of(server, "m") == str(slow)  # the one that was chosen before


async def test_a_later_choice_counts_more_than_that_of_a_version_which_loads(
    server: RunningServer, second: Path, slow: Path
) -> None:
    assert (await register(server, second, model_name="m", model_version="1")).status == 200
    begun = await register(server, slow, model_name="m", model_version="2", default=True, synchronous=False)
    assert begun.status == 202
    loading = server.dispatcher.registry.find_registered("m", "2").loading
    assert loading is not None
    assert (await ask(server, "PUT", "/models/m/1", default=True)).status == 200
    SlowBackend.go_on.set()
    async with asyncio.timeout(60):
        await asyncio.wait([loading])
    assert await default_of(server, "m") == str(second)


async def test_a_default_that_fails_changes_nothing(
    server: RunningServer, second: Path, model_dir: ModelDirectory
) -> None:
    wrong = model_dir({"serving.properties": "option.rolling_batch=nothing\n"}, "wrong")
    assert (await register(server, second, model_name="m", model_version="1")).status == 200
    begun = await register(server, wrong, model_name="m", model_version="2", default=True, synchronous=False)
    assert begun.status == 202
    async with asyncio.timeout(60):
        while (registered := server.dispatcher.registry.find_registered("m", "2")).failure is None:
            await asyncio.sleep(0)
    assert registered.state == "failed"
    assert await default_of(server, "m") == str(second)
    assert (await register(server, second, model_name="m", model_version="2")).status == 200  # and not as the default
    (one, two) = [each["models"][0]["default"] for each in (await ask(server, "GET", "/models/m")).json()]
    assert (one, two) == (True, False)


async def test_change_of_a_queue(server: RunningServer) -> None:
    given: dict[str, Any] = {"job_queue_size": 1, "max_idle_time": 5, "synchronous": False}
    answer = await ask(server, "PUT", "/models/first", body={"job_queue_size": 3}, **given)  # the query comes first
    assert (answer.status, answer.json()) == (202, {"status": "Worker updated"})
    async with asyncio.timeout(60):
        while (await describe(server, "first"))["queueSize"] != 1:
            await asyncio.sleep(0)
    model = server.model
    assert model.admission.maximum == 1 + model.plan.setup.properties.max_rolling_batch_size
    assert (await describe(server, "first"))["maxIdleSeconds"] == 5
    assert (await ask(server, "PUT", "/models/nobody", min_worker=1)).status == 404
    for synchronous in (True, False):
        answer = await ask(server, "PUT", "/models/first", min_worker=2, max_worker=1, synchronous=synchronous)
        assert answer.status == 400


async def test_change_of_the_number_of_workers(server: RunningServer, model_dir: ModelDirectory) -> None:
    function = model_dir({"model.py": HANDLE}, "function")
    assert (await register(server, function, min_worker=1, max_worker=1)).status == 200
    assert (await ask(server, "PUT", "/models/function", min_worker=2, max_worker=2)).status == 200
    (group,) = (await describe(server, "function"))["workerGroups"]
    assert (group["minWorkers"], len(group["workers"])) == (2, 2)
    processes = {worker["processId"] for worker in group["workers"]}
    assert len(processes) == 2
    assert all(worker["memoryUsage"] > 1 << 20 for worker in group["workers"])
    begun = [datetime.fromisoformat(worker["startTime"]) for worker in group["workers"]]
    assert all(abs(datetime.now(UTC) - each) < timedelta(minutes=5) for each in begun)
    assert len(set(begun)) == 2  # each has its own, and not the time when the model was loaded
    assert (await ask(server, "PUT", "/models/function", min_worker=1)).status == 200
    (group,) = (await describe(server, "function"))["workerGroups"]
    assert (group["minWorkers"], group["maxWorkers"], len(group["workers"])) == (1, 1, 1)
    answer = await server.post("/predictions/function", {"inputs": "Hello"})
    assert answer.json()["process"] == group["workers"][0]["processId"]
    answer = await ask(server, "PUT", "/models/function", min_worker=3, max_worker=2)
    assert (answer.status, answer.json()["error"]) == (
        400,
        "`min_worker` must be at most `max_worker`=2. Given: 3",
    )


async def test_workers_by_device(server: RunningServer, model_dir: ModelDirectory) -> None:
    function = model_dir({"model.py": HANDLE}, "function")
    assert (await register(server, function, min_worker=1, max_worker=1, device="gpu1;gpu0")).status == 200
    groups = (await describe(server, "function"))["workerGroups"]
    assert [group["device"]["deviceId"] for group in groups] == [1, 0]
    assert [[worker["id"] for worker in group["workers"]] for group in groups] == [[1], [2]]
    assert {(group["minWorkers"], group["maxWorkers"]) for group in groups} == {(1, 1)}


async def test_other_hosts_may_not_manage(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiohttp.web.Request.remote", "192.0.2.7")
    paths = {"GET": "/models", "POST": "/models", "DELETE": "/models/first", "PUT": "/models/first"}
    for method, path in paths.items():
        answer = await ask(server, method, path)
        assert answer.status == 403, (method, path)
        assert answer.json()["error"].endswith("from the server's own host; open_management=true allows other hosts")

"""The replacement of a version by another one, side by side or engine by engine, in which no request is lost."""

import asyncio
import gc
import re
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from lmi_core.registry.memory_planner import MEGABYTE, Need
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.management.asking import ask, describe, generated, register
from tests.handlers.management.engines import Engine, EnginesBackend

PATH = "/predictions/second"


@pytest.fixture(autouse=True)
def no_engines() -> None:
    Engine.owners.clear()
    Engine.faulty.clear()
    Engine.gates.clear()


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    server = await serve(model_dir({"serving.properties": SCRIPTED}, "first"))
    server.dispatcher.registry.reader._plugins.backends.register(EnginesBackend)  # type: ignore[union-attr]
    return server


@pytest.fixture
def versions(model_dir: ModelDirectory) -> list[Path]:
    """Two versions, each of whose answers are its number as a word."""
    properties = "option.rolling_batch=engines\noption.scripted_text={}\n"
    return [model_dir({"serving.properties": properties.format(text)}, text) for text in ("one", "two")]


async def begin(
    server: RunningServer, directory: Path, engines: int, **further: object
) -> "tuple[asyncio.Task[str], asyncio.Event]":
    """Register the first version, and begin a request that ends once the event is set."""
    answer = await register(server, directory, model_name="second", model_version="1", min_worker=engines, **further)
    assert answer.status == 200, answer.body
    backend = server.dispatcher.models["second"].backend
    assert isinstance(backend, ScriptedBackend)
    backend.enqueue(Script("one", prefilled=(release := asyncio.Event())))
    asked = asyncio.create_task(generated(server, PATH))
    while not backend.history:
        await asyncio.sleep(0.005)
    return asked, release


def replace(
    server: RunningServer, directory: Path, engines: int, version: str = "2", **further: object
) -> "asyncio.Task[Any]":
    fields = {"model_name": "second", "model_version": version, "min_worker": engines, "replace": True, **further}
    return asyncio.create_task(register(server, directory, **fields))


async def until_gap(server: RunningServer) -> None:
    """Wait until requests wait for the only engine."""
    while not server.dispatcher.registry.gaps:
        await asyncio.sleep(0.005)


async def until_owned(owners: dict[int, str]) -> None:
    while Engine.owners != owners:  # the test's time limit applies
        await asyncio.sleep(0.005)


async def test_engines_go_one_by_one_each_after_its_requests(server: RunningServer, versions: list[Path]) -> None:
    asked, release = await begin(server, versions[0], 3)
    texts = list[str]()

    async def ask_on() -> None:
        while True:
            texts.append(await generated(server, PATH))

    asking = asyncio.create_task(ask_on())
    replacing = replace(server, versions[1], 3)
    await until_owned({0: "one", 1: "two", 2: "two"})
    while "two" not in texts:
        await asyncio.sleep(0.005)
    assert not replacing.done()
    release.set()
    assert await asked == "one"
    assert (await replacing).status == 200
    assert Engine.owners == {0: "two", 1: "two", 2: "two"}
    asking.cancel()
    assert texts == sorted(texts)  # once the new version is the default, it answers everything
    assert set(texts) == {"one", "two"}
    assert (await server.post(f"{PATH}/1", {"inputs": "Hello"})).status == 404
    assert (await ask(server, "PUT", "/models/second", min_worker=2)).status == 200
    assert len(Engine.owners) == 2


@pytest.mark.parametrize("faulty", [0, 1, 2])  # devices are exchanged in this order
async def test_version_that_fails_gives_the_engines_back(
    server: RunningServer, versions: list[Path], faulty: int
) -> None:
    asked, release = await begin(server, versions[0], 4)
    Engine.faulty["two"] = faulty
    release.set()
    answer = await replace(server, versions[1], 4)
    assert (answer.status, answer.json()["error"]) == (400, f"device {faulty} is faulty")
    assert dict.fromkeys(range(4), "one") == Engine.owners
    assert [await asked, await generated(server, PATH)] == ["one", "one"]
    assert (await describe(server, "second"))["default"]


async def test_last_engine_that_fails_is_reported(server: RunningServer, versions: list[Path]) -> None:
    asked, release = await begin(server, versions[0], 2)
    Engine.faulty["two"] = 0
    replacing = replace(server, versions[1], 2)
    await until_owned({0: "one", 1: "two"})
    release.set()
    assert (await replacing).json()["error"] == "device 0 is faulty"
    assert [await asked, await generated(server, PATH)] == ["one", "two"]
    assert (await describe(server, "second"))["reason"] == "device 0 is faulty"


async def test_replacement_that_is_removed_gives_the_engines_back(server: RunningServer, versions: list[Path]) -> None:
    asked, release = await begin(server, versions[0], 3)
    other, release_other = asyncio.Event(), asyncio.Event()
    backend = server.dispatcher.models["second"].backend
    assert isinstance(backend, ScriptedBackend)
    backend.enqueue(Script("one", prefilled=release_other, started=other))
    others = asyncio.create_task(generated(server, PATH))
    while len(backend.history) < 2:
        await asyncio.sleep(0.005)
    replacing = replace(server, versions[1], 3)
    await until_owned({0: "one", 1: "one", 2: "two"})
    assert (await ask(server, "DELETE", "/models/second/2")).status == 200
    await replacing
    await until_owned(dict.fromkeys(range(3), "one"))
    release.set()
    release_other.set()
    assert [await asked, await others, await generated(server, PATH)] == ["one", "one", "one"]


@pytest.mark.parametrize("faulty", [False, True])
async def test_requests_wait_while_the_only_engine_is_replaced(
    server: RunningServer, versions: list[Path], faulty: bool
) -> None:
    asked, release = await begin(server, versions[0], 1)
    if faulty:
        Engine.faulty["two"] = 0
    replacing = replace(server, versions[1], 1)
    await until_gap(server)
    waiting = [asyncio.create_task(generated(server, PATH)) for _ in range(3)]
    counting = asyncio.create_task(server.post("/tokenize", {"model": "second", "prompt": "Hello"}))
    assert (await server.get("/ping")).status == 200
    release.set()
    assert await asked == "one"
    assert await asyncio.gather(*waiting) == ["one" if faulty else "two"] * 3
    assert (await counting).status == 200
    assert (await replacing).status == (400 if faulty else 200)


async def test_requests_that_wait_are_in_the_queue(server: RunningServer, versions: list[Path]) -> None:
    few: dict[str, Any] = {"job_queue_size": 2, "option.max_rolling_batch_size": 1}
    asked, release = await begin(server, versions[0], 1, **few)
    replacing = replace(server, versions[1], 1, **few)
    await until_gap(server)
    waiting = [asyncio.create_task(generated(server, PATH)) for _ in range(2)]
    model = server.dispatcher.models["second"]
    while model.admission.taken < 3:
        await asyncio.sleep(0.005)
    begun = time.perf_counter()
    refused = await server.post(PATH, {"inputs": "Hello"})
    assert (refused.status, refused.json()["message"]) == (
        503,
        "model second has 3 requests in its queue, which is full",
    )
    (described,) = (await ask(server, "GET", "/models/second/1")).json()[0]["models"]
    assert described["requestInQueue"] == 3
    waited = time.perf_counter() - begun
    release.set()
    assert [await asked, *await asyncio.gather(*waiting)] == ["one", "two", "two"]
    assert (await replacing).status == 200
    figures = (await server.get("/metrics")).body.decode()
    times = re.findall(r'^lmi_queue_time_seconds_sum{[^}]*model="second"[^}]*} (.*)$', figures, re.MULTILINE)
    assert sum(map(float, times)) >= 2 * waited


async def test_requests_that_wait_obey_the_limit_of_the_queue(server: RunningServer, versions: list[Path]) -> None:
    asked, release = await begin(server, versions[0], 1, **{"option.queue_timeout": 0.05})
    replacing = replace(server, versions[1], 1)
    await until_gap(server)
    late = await server.post(PATH, {"inputs": "Hello"})
    assert (late.status, late.json()["message"]) == (
        503,
        "the request did not begin within option.queue_timeout=0.05 seconds",
    )
    release.set()
    assert [await asked, (await replacing).status] == ["one", 200]


async def test_requests_that_wait_are_refused_at_shutdown(server: RunningServer, versions: list[Path]) -> None:
    asked, release = await begin(server, versions[0], 1)
    replacing = replace(server, versions[1], 1)
    await until_gap(server)
    waiting = asyncio.create_task(server.post(PATH, {"inputs": "Hello"}))
    while server.dispatcher.models["second"].admission.taken < 2:
        await asyncio.sleep(0.005)
    draining = asyncio.create_task(server.dispatcher.drain(60))
    assert (await waiting).status == 503
    release.set()
    await draining
    assert [await asked, (await replacing).status] == ["one", 200]


async def test_memory_in_exchange_is_not_for_other_models(
    server: RunningServer, model_dir: ModelDirectory, versions: list[Path]
) -> None:
    """A model that is loaded meanwhile waits for the outcome."""
    other = model_dir({"serving.properties": f"{SCRIPTED}required_memory_mb=1\n"}, "other")
    for each in versions:
        properties = each / "serving.properties"
        properties.write_text(f"{properties.read_text()}required_memory_mb=2\n")
    loop, asked_for = asyncio.get_running_loop(), asyncio.Event()

    def free(need: Need) -> int:
        if need.size == MEGABYTE:
            loop.call_soon_threadsafe(asked_for.set)
        return (2 - len(Engine.owners)) * MEGABYTE

    server.dispatcher.registry.memory_planner.free = free
    asked, release = await begin(server, versions[0], 2)
    gate = Engine.gates["two"] = asyncio.Event()
    replacing = replace(server, versions[1], 2)
    await until_owned({0: "one"})
    loading = asyncio.create_task(register(server, other))
    await asked_for.wait()
    gate.set()
    answer = await loading
    assert (answer.status, Engine.owners) == (507, {0: "one", 1: "two"})
    release.set()
    assert [await asked, (await replacing).status] == ["one", 200]
    assert Engine.owners == {0: "two", 1: "two"}
    assert (await register(server, other)).status == 507
    assert (await ask(server, "PUT", "/models/second", min_worker=1)).status == 200
    assert (await register(server, other)).status == 200


async def test_versions_that_fit_are_side_by_side(server: RunningServer, model_dir: ModelDirectory) -> None:
    two = model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text=two\n"}, "two")
    backend = server.dispatcher.models["first"].backend
    assert isinstance(backend, ScriptedBackend)
    kept = (await server.post("/v1/responses", {"model": "first", "input": "Hello"})).json()
    backend.enqueue(Script("one", prefilled=(release := asyncio.Event())))
    asked = asyncio.create_task(generated(server, "/predictions/first"))
    while len(backend.history) < 2:
        await asyncio.sleep(0.005)
    replacing = asyncio.create_task(register(server, two, model_name="first", model_version="2", replace=True))
    while await generated(server, "/predictions/first") != "two":
        pass
    assert not replacing.done()
    release.set()
    assert [await asked, (await replacing).status] == ["one", 200]
    body = {"model": "first", "input": "And?", "previous_response_id": kept["id"]}
    assert (await server.post("/v1/responses", body)).status == 200
    assert [each["models"][0]["state"] for each in (await ask(server, "GET", "/models/first")).json()] == ["ready"]


@pytest.mark.parametrize("engines", [1, 2])  # beside the new version, or one by one
async def test_replaced_version_that_still_answers_can_be_removed(
    server: RunningServer, model_dir: ModelDirectory, versions: list[Path], engines: int
) -> None:
    server.dispatcher.registry.drain_seconds = 0.1
    two = versions[1] if engines == 2 else model_dir({"serving.properties": SCRIPTED}, "three")
    asked, _ = await begin(server, versions[0], engines)
    replacing = replace(server, two, engines)
    while [each.version for each in server.dispatcher.registry.versions("second")] != ["2"]:
        await asyncio.sleep(0.005)
    assert (await ask(server, "DELETE", "/models/second/1")).status == 200
    assert "was unregistered" in await asked
    assert (await replacing).status == 200
    assert dict.fromkeys(range(2), "two") == Engine.owners if engines == 2 else not Engine.owners
    assert (await ask(server, "DELETE", "/models/second/1")).status == 404
    assert (await ask(server, "GET", "/models/second")).status == 200


async def test_requests_after_a_drain_and_a_failure(server: RunningServer, versions: list[Path]) -> None:
    server.dispatcher.registry.drain_seconds = 0.1
    asked, _ = await begin(server, versions[0], 1)
    Engine.faulty["two"] = 0
    assert (await replace(server, versions[1], 1)).status == 400
    assert "being replaced" in await asked
    assert await generated(server, PATH) == "one"


async def test_requests_after_a_drain_and_a_shutdown(server: RunningServer, versions: list[Path]) -> None:
    server.dispatcher.registry.drain_seconds = 0.1
    asked, _ = await begin(server, versions[0], 1)
    assert (await ask(server, "PUT", "/models/second", max_worker=0)).status == 200
    assert "was shut down" in await asked
    assert (await ask(server, "PUT", "/models/second", max_worker=1)).status == 200
    assert await generated(server, PATH) == "one"


async def test_two_at_once(server: RunningServer, versions: list[Path]) -> None:
    """The second one waits, and then replaces what the first one brought."""
    asked, release = await begin(server, versions[0], 1)
    replacing = [replace(server, versions[1], 1)]
    registry = server.dispatcher.registry
    await until_gap(server)
    replacing.append(replace(server, versions[0], 1, "3"))
    waiting = asyncio.create_task(generated(server, PATH))
    release.set()
    assert [each.status for each in await asyncio.gather(*replacing)] == [200, 200]
    assert (await asked, await waiting in ("one", "two")) == ("one", True)
    assert ([each.version for each in registry.versions("second")], registry.gaps) == (["3"], {})


async def test_version_that_is_still_loading_is_replaced_once_it_is_loaded(
    server: RunningServer, versions: list[Path]
) -> None:
    Engine.gates["one"] = gate = asyncio.Event()
    registry = server.dispatcher.registry
    registering = asyncio.create_task(
        register(server, versions[0], model_name="second", model_version="1", min_worker=1)
    )
    while "second" not in registry.names:
        await asyncio.sleep(0.005)
    replacing = replace(server, versions[1], 1)
    while len([*registry.versions("second")]) < 2:
        await asyncio.sleep(0.005)
    gate.set()
    assert [each.status for each in await asyncio.gather(registering, replacing)] == [200, 200]
    assert [each.version for each in registry.versions("second")] == ["2"]
    assert await generated(server, PATH) == "two"


@pytest.mark.parametrize("size", [64, 128])
async def test_stored_responses_of_another_limit_are_not_taken_over(
    server: RunningServer, versions: list[Path], size: int
) -> None:
    answer = await register(server, versions[0], model_name="second", **{"option.response_store_size": "64"})
    assert answer.status == 200, answer.body
    former = server.dispatcher.models["second"].conversations
    options = {"option.response_store_size": str(size)}
    assert (await replace(server, versions[1], 1, **options)).status == 200
    now = server.dispatcher.models["second"].conversations
    assert (now is former, now.limit == former.limit) == (size == 64, size == 64)


async def test_former_versions_are_freed(server: RunningServer, versions: list[Path]) -> None:
    await register(server, versions[0], model_name="second", model_version="1", min_worker=2)
    former = weakref.ref(server.dispatcher.models["second"])
    assert (await replace(server, versions[1], 2)).status == 200
    gc.collect()
    assert former() is None

"""Models that are unloaded: after their `max_idle_time`, to make room, or by their operator."""

import asyncio
import gc
import os
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.host.processes import memory_of
from lmi_core.registry.memory_planner import Device, Need
from lmi_core.registry.registration import Registration
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.management.asking import ask, describe, generated, register
from tests.handlers.management.engines import Engine, EnginesBackend
from tests.handlers.management.test_models import HANDLE
from tests.longest_hold import slowness

FORMATTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(request_output):
    return '{"by": "adapter"}'
"""
GIGABYTE = 1024**3


class CountedBackend(ScriptedBackend):
    """A backend that counts its starts, of which the next may fail."""

    name = "counted"
    starts = 0
    fails = False

    async def start(self) -> None:
        cls = type(self)
        cls.starts += 1
        await asyncio.sleep(0)
        if cls.fails:
            raise ConfigurationError("no weights")


@pytest.fixture(autouse=True)
def uncounted() -> None:
    CountedBackend.starts, CountedBackend.fails = 0, False


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    server = await serve(model_dir({"serving.properties": SCRIPTED}, "first"))
    server.dispatcher.registry.reader._plugins.backends.register(CountedBackend)  # type: ignore[union-attr]
    return server


@pytest.fixture
def second(model_dir: ModelDirectory, server: RunningServer) -> Path:
    properties = "option.rolling_batch=counted\noption.scripted_text=two\n"
    return model_dir({"serving.properties": properties, "french/model.py": FORMATTER}, "second")


async def until_idle(server: RunningServer, name: str) -> None:
    async with asyncio.timeout(60):
        while (await describe(server, name))["state"] != "idle":
            await asyncio.sleep(0.01)


async def make_idle(server: RunningServer, name: str) -> None:
    assert await server.dispatcher.registry.make_idle(server.dispatcher.registry.find_registered(name))


async def test_unused_model_is_unloaded_and_loaded_by_the_next_request(server: RunningServer, second: Path) -> None:
    assert (await register(server, second, unload_idle=True, max_idle_time=1)).status == 200
    assert await generated(server, "/predictions/second") == "two"
    await until_idle(server, "second")
    assert (await describe(server, "second"))["status"] == "Healthy"
    assert (await describe(server, "second"))["workerGroups"][0]["workers"] == []
    assert (await server.get("/ping")).status == 200
    assert (await describe(server, "first"))["state"] == "ready"  # whose operator did not ask for it
    before = CountedBackend.starts
    assert (await ask(server, "PUT", "/models/second", max_idle_time=3600)).status == 200
    assert await generated(server, "/predictions/second") == "two"
    assert (await describe(server, "second"))["state"] == "ready"
    assert CountedBackend.starts == before + 1


async def test_requests_to_an_idle_model_load_it_once(server: RunningServer, second: Path) -> None:
    await register(server, second)
    await make_idle(server, "second")
    answers = await asyncio.gather(*(generated(server, "/predictions/second") for _ in range(8)))
    assert answers == ["two"] * 8
    assert CountedBackend.starts == 2


async def test_engines_end_down_to_the_last_one_and_start_with_the_next_request(
    server: RunningServer, model_dir: ModelDirectory
) -> None:
    server.dispatcher.registry.reader._plugins.backends.register(EnginesBackend)  # type: ignore[union-attr]
    Engine.owners.clear()
    properties = "option.rolling_batch=engines\noption.scripted_text=one\noption.max_rolling_batch_size=1\n"
    directory = model_dir(
        {"serving.properties": f"{properties}minWorkers=0\nmaxWorkers=2\nmax_idle_time=1\n"}, "second"
    )
    assert (await register(server, directory)).status == 200
    assert len(Engine.owners) == 1
    backend = server.dispatcher.models["second"].backend
    assert isinstance(backend, EnginesBackend)
    scripts = [Script("one", prefilled=asyncio.Event()) for _ in range(3)]
    backend.enqueue(*scripts)
    asked = [asyncio.create_task(generated(server, "/predictions/second")) for _ in scripts]
    while len(Engine.owners) < 2:
        await asyncio.sleep(0.005)
    for each in scripts:
        assert each.prefilled is not None
        each.prefilled.set()
    assert await asyncio.gather(*asked) == ["one"] * 3
    await until_idle(server, "second")
    assert Engine.owners == {}
    assert (await ask(server, "GET", "/models/second")).json()[0]["models"][0]["workerGroups"][0]["minWorkers"] == 0
    assert await generated(server, "/predictions/second") == "one"
    assert len(Engine.owners) == 1


async def test_model_in_use_is_not_unloaded(server: RunningServer, second: Path) -> None:
    await register(server, second)
    model = server.dispatcher.models["second"]
    with model.usage.call():
        assert not await server.dispatcher.registry.make_idle(server.dispatcher.registry.find_registered("second"))
    assert model.ready


async def test_idle_model_that_cannot_be_loaded_tells_why_and_is_tried_again(
    server: RunningServer, second: Path
) -> None:
    await register(server, second)
    await make_idle(server, "second")
    CountedBackend.fails = True
    answer = await server.post("/predictions/second", {"inputs": "Hello"})
    assert (answer.status, answer.json()["error"]) == (503, "model second could not be loaded: no weights")
    found = await describe(server, "second")
    assert (found["state"], found["reason"]) == ("idle", "no weights")
    CountedBackend.fails = False
    assert await generated(server, "/predictions/second") == "two"
    assert "reason" not in await describe(server, "second")


async def test_idle_model_keeps_its_adapters(server: RunningServer, second: Path) -> None:
    await register(server, second)
    assert (await ask(server, "POST", "/models/second/adapters", name="french", src="french", pin=True)).status == 200
    await make_idle(server, "second")
    adapter = {"name": "french", "src": str(second / "french"), "preload": True, "pin": True}
    assert (await ask(server, "GET", "/models/second/adapters")).json() == {"adapters": [adapter]}
    assert (await describe(server, "second"))["adapters"] == [adapter]
    assert CountedBackend.starts == 1
    answer = await server.post("/v1/completions", {"model": "french", "prompt": "Hello"})
    assert answer.json() == {"by": "adapter"}
    assert CountedBackend.starts == 2
    assert (await describe(server, "second"))["adapters"] == [adapter]


async def test_idle_model_function_has_no_process(server: RunningServer, model_dir: ModelDirectory) -> None:
    await register(server, model_dir({"model.py": HANDLE}, "function"))
    before = (await server.post("/predictions/function", {})).json()["process"]
    await make_idle(server, "function")
    assert not psutil.pid_exists(before)
    after = (await server.post("/predictions/function", {})).json()["process"]
    assert after != before


async def test_model_is_shut_down_by_its_operator(server: RunningServer, second: Path) -> None:
    await register(server, second)
    assert (await ask(server, "PUT", "/models/second", min_worker=0, max_worker=0)).status == 200
    assert not server.dispatcher.models["second"].ready
    assert (await ask(server, "PUT", "/models/second", job_queue_size=5)).status == 200
    for answer in (await server.post("/predictions/second", {"inputs": "Hello"}), await server.get("/ping")):
        assert (answer.status, "Retry-After" in answer.headers) == (503, False)
        assert "all workers of model second have been shut down" in answer.body.decode()
    assert await generated(server, "/predictions/first") != ""
    (group,) = (await describe(server, "second"))["workerGroups"]
    assert (group["maxWorkers"], group["workers"]) == (0, [])
    assert CountedBackend.starts == 1
    assert (await ask(server, "PUT", "/models/second", min_worker=1)).status == 200
    assert CountedBackend.starts == 2  # before the answer
    assert await generated(server, "/predictions/second") == "two"
    assert (await server.get("/ping")).status == 200


async def test_running_request_outlives_a_shutdown(server: RunningServer, second: Path) -> None:
    await register(server, second)
    backend = server.dispatcher.models["second"].backend
    assert isinstance(backend, CountedBackend)
    backend.enqueue(script := Script("slow", prefilled=asyncio.Event()))
    running = asyncio.ensure_future(generated(server, "/predictions/second"))
    while not backend.history:
        await asyncio.sleep(0)
    shutting = asyncio.ensure_future(ask(server, "PUT", "/models/second", max_worker=0))
    async with asyncio.timeout(60):
        while (await server.post("/predictions/second", {"inputs": "Hello"})).status != 503:
            await asyncio.sleep(0)
    assert script.prefilled is not None
    script.prefilled.set()
    assert await running == "slow"
    assert (await shutting).status == 200


async def test_request_that_does_not_outlive_a_shutdown_is_counted_once(
    server: RunningServer, second: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await register(server, second)
    server.dispatcher.registry.drain_seconds = 0
    model = server.dispatcher.models["second"]
    assert isinstance(model.backend, ScriptedBackend)
    model.backend.enqueue(script := Script("slowly", hold=True))
    request = asyncio.create_task(server.post("/predictions/second", {"inputs": "Hello"}))
    await script.started.wait()
    assert (await ask(server, "PUT", "/models/second", max_worker=0)).status == 200
    assert (await request).status == 503
    assert "model second: 1 requests did not finish in time and end with an error" in caplog.messages


async def test_idle_model_is_removed_at_once(server: RunningServer, second: Path) -> None:
    await register(server, second)
    await make_idle(server, "second")
    assert (await ask(server, "DELETE", "/models/second")).status == 200
    assert (await server.post("/predictions/second", {"inputs": "Hello"})).status == 404


async def test_model_that_does_not_fit_is_refused_with_the_numbers(server: RunningServer, second: Path) -> None:
    planner = server.dispatcher.registry.memory_planner
    planner.free = lambda need: 2 * GIGABYTE
    (second / "serving.properties").write_text("option.rolling_batch=counted\nrequired_memory_mb=3072\n")
    answer = await register(server, second)
    assert answer.status == 507
    assert answer.json()["error"] == (
        "model second needs 3.22 GB (required_memory_mb), but 2.15 GB are free in main memory: "
        "unload another model, or set evict_models=true"
    )
    assert (await ask(server, "GET", "/models/second")).status == 404
    assert CountedBackend.starts == 0
    (second / "serving.properties").write_text("option.rolling_batch=counted\nrequired_memory_mb=1024\n")
    assert (await register(server, second)).status == 200


async def test_least_recently_used_model_makes_room_where_that_is_allowed(server: RunningServer, second: Path) -> None:
    registry = server.dispatcher.registry
    registry.memory_planner.evicts = True

    def free(need: Need) -> int:
        assert need == Need(Device.CPU, 2 * GIGABYTE, "required_memory_mb and reserved_memory_mb")
        return (
            4 - 2 * len([model for model in registry.all_models() if model.ready and model.name != "first"])
        ) * GIGABYTE

    registry.memory_planner.free = free
    properties = (second / "serving.properties").read_text()
    (second / "serving.properties").write_text(f"{properties}required_memory_mb=1024\nreserved_memory_mb=1024\n")
    with server.dispatcher.models["first"].usage.call():  # in use, or it would be the first to go
        for name in ("a", "b"):
            assert (await register(server, second, model_name=name)).status == 200
        assert await generated(server, "/predictions/a") == "two"  # b is the least recently used now
        assert (await register(server, second, model_name="c")).status == 200
        assert [(await describe(server, name))["state"] for name in "abc"] == ["ready", "idle", "ready"]
        assert await generated(server, "/predictions/b") == "two"
        assert [(await describe(server, name))["state"] for name in "abc"] == ["idle", "ready", "ready"]


async def test_no_model_makes_room_for_one_that_could_never_fit(server: RunningServer, second: Path) -> None:
    registry = server.dispatcher.registry
    registry.memory_planner.evicts = True
    registry.memory_planner.free = lambda need: 8 * GIGABYTE - GIGABYTE * sum(m.ready for m in registry.all_models())
    properties = (second / "serving.properties").read_text()
    (second / "serving.properties").write_text(f"{properties}required_memory_mb=1024\n")
    assert (await register(server, second, model_name="a")).status == 200
    more_than_all_processes_have = 1024 * 1024
    (second / "serving.properties").write_text(f"{properties}required_memory_mb={more_than_all_processes_have}\n")
    answer = await register(server, second, model_name="huge")
    assert answer.status == 507
    assert answer.json()["error"] == (
        "model huge needs 1.1 TB (required_memory_mb), but 6.44 GB are free in main memory, and unloading every "
        "unused model would not free enough"
    )
    assert [(await describe(server, name))["state"] for name in ("first", "a")] == ["ready", "ready"]


async def test_no_model_makes_room_if_the_memory_is_that_of_models_in_use(
    server: RunningServer, second: Path, model_dir: ModelDirectory
) -> None:
    held = 200 * 1024**2
    function = model_dir({"model.py": f"KEPT = b'x' * {held}\n{HANDLE}"}, "function")
    assert (await register(server, function, min_worker=1, max_worker=1)).status == 200
    assert (await register(server, second)).status == 200
    planner = server.dispatcher.registry.memory_planner
    planner.evicts, planner.free = True, lambda need: 0
    needed = memory_of({"": [os.getpid()]})[""] - held // 2
    properties = f"{SCRIPTED}required_memory_mb={needed // 1024**2}\n"
    with server.dispatcher.models["function"].usage.call():
        answer = await register(server, model_dir({"serving.properties": properties}, "large"))
    assert answer.status == 507
    assert answer.json()["error"].endswith(", and unloading every unused model would not free enough")
    assert [(await describe(server, name))["state"] for name in ("first", "second")] == ["ready", "ready"]


async def test_two_hundred_loads_and_unloads_leave_nothing_behind(server: RunningServer, second: Path) -> None:
    script = second / "model.py"
    script.write_text("import json\n" + FORMATTER)
    process = psutil.Process()

    def left() -> tuple[int, int, int, int]:
        return len(os.listdir("/proc/self/fd")), len(process.children(recursive=True)), len(asyncio.all_tasks()), 0

    async def load(count: int) -> None:
        for _ in range(count):
            assert (await register(server, second)).status == 200
            assert (await server.post("/predictions/second", {"inputs": "Hello"})).json() == {"by": "adapter"}
            assert (await ask(server, "DELETE", "/models/second")).status == 200

    def objects() -> Counter[str]:
        """Return how many objects of our own classes there are."""
        gc.collect()
        classes = (type(each) for each in gc.get_objects())
        return Counter(each.__qualname__ for each in classes if str(each.__module__).startswith("lmi_"))

    await load(20)
    before, memory, kept = left(), process.memory_info().rss, objects()
    await load(180)
    assert left() == before
    assert {name: count for name, count in (objects() - kept).items() if count > 10} == {}
    assert process.memory_info().rss - memory < 30 * 1024**2
    assert CountedBackend.starts == 200


async def test_a_thousand_models_are_listed_and_asked_quickly(server: RunningServer, second: Path) -> None:
    process = psutil.Process()
    registry = server.dispatcher.registry
    assert (await register(server, second, model_name="m0")).status == 200
    before = process.memory_info().rss
    for i in range(1, 1000):
        registered = registry.register(Registration(f"m{i}", str(second)))
        assert registered.loading is not None
        await registered.loading
        assert await registry.make_idle(registered)
    assert (process.memory_info().rss - before) / 999 < 1024**2  # of each idle model

    async def seconds(path: str) -> float:
        """Return the processor time of the loop's thread, which is the client's too: others delay it less."""
        begun = time.thread_time()
        answer = await server.get(path)
        assert answer.status == 200
        return time.thread_time() - begun

    assert len((await server.get("/models?limit=1001")).json()["models"]) == 1001
    assert min([await seconds("/models?limit=1001") for _ in range(8)]) < 0.05 * slowness()
    assert await generated(server, "/invocations", model="m7") == "two"

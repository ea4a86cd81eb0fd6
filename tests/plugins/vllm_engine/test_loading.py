"""Engines that hang: while they are created, and when they are gone under requests."""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi_core.errors import BackendUnhealthy
from lmi_core.workers.replicas import Replicas
from lmi_plugins.vllm_engine import engine as engine_module
from lmi_plugins.vllm_engine import loading
from lmi_plugins.vllm_engine.adapters.loaded import VllmAdapters
from lmi_plugins.vllm_engine.engine import VllmEngine
from lmi_plugins.vllm_engine.library import AsyncLLM, EngineDeadError, fail_requests
from tests.plugins.costly_guides import eventually


class Hanging:
    """What creates an engine once `go` is set."""

    def __init__(self, result: object) -> None:
        self.begun, self.go, self.shut_down = threading.Event(), threading.Event(), threading.Event()
        self.result = result

    def create(self) -> AsyncLLM:
        self.begun.set()
        self.go.wait()
        if isinstance(self.result, Exception):
            raise self.result
        return cast("AsyncLLM", self.result)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging("an engine")
    monkeypatch.setattr(loading, "ABANDON_SECONDS", 0.05)
    monkeypatch.setattr(loading, "shut_down", lambda _: hanging.shut_down.set())
    yield hanging
    hanging.go.set()


async def cancel_load(hanging: Hanging) -> None:
    task = asyncio.create_task(loading._in_own_thread(hanging.create))
    await asyncio.to_thread(hanging.begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_engine_that_is_not_created_is_abandoned_and_ended_later(hanging: Hanging) -> None:
    await cancel_load(hanging)
    assert not hanging.shut_down.is_set()
    hanging.go.set()
    assert await asyncio.to_thread(hanging.shut_down.wait, 30)


async def test_an_engine_that_is_created_late_is_ended_too(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ABANDON_SECONDS", 30)

    def started_by(_: threading.Thread) -> set[int]:
        hanging.go.set()
        return set()

    monkeypatch.setattr(loading, "_started_by", started_by)
    await cancel_load(hanging)  # which kills its processes first, and that lets it end
    assert hanging.shut_down.is_set()


class Starting(Hanging):
    """What creates an engine with a process, and waits for that until it has ended."""

    process: BaseProcess

    def create(self) -> AsyncLLM:
        self.process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
        self.process.start()
        self.begun.set()
        self.process.join()
        raise ValueError("the core has ended")


async def test_only_the_processes_of_the_engine_that_is_cancelled_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "ABANDON_SECONDS", 30)
    of_others = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    of_others.start()
    first, second = Starting(None), Starting(None)
    tasks = [asyncio.create_task(loading._in_own_thread(each.create)) for each in (first, second)]
    try:
        for each in (first, second):
            assert await asyncio.to_thread(each.begun.wait, 60)
        tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]
        assert not first.process.is_alive()
        assert second.process.is_alive()
        await eventually(lambda: sum(each.name == loading.THREAD for each in threading.enumerate()) == 1)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        await eventually(lambda: not second.process.is_alive())
        assert of_others.is_alive()
    finally:
        for process in (of_others, first.process, second.process):
            process.kill()
            await asyncio.to_thread(process.join)


async def test_errors_of_the_thread_are_raised_in_the_loop(hanging: Hanging) -> None:
    hanging.result = ValueError("no memory")
    hanging.go.set()
    with pytest.raises(ValueError, match="no memory"):
        await loading._in_own_thread(hanging.create)


async def test_engines_are_loaded_at_the_same_time_on_different_gpus_only() -> None:
    loaded, release = list[str](), asyncio.Event()

    async def load(name: str, *gpus: int) -> None:
        async with loading.alone_on(gpus):
            loaded.append(name)
            await release.wait()

    async with asyncio.TaskGroup() as group:
        for name, gpus in (("on 0 and 1", (1, 0)), ("on 1 and 2", (1, 2)), ("on 3", (3,)), ("on none", ())):
            group.create_task(load(name, *gpus))
        while len(loaded) < 3:
            await asyncio.sleep(0)
        assert loaded == ["on 0 and 1", "on 3", "on none"]
        release.set()
    assert loaded[-1] == "on 1 and 2"


class Dead:
    """Stands for an AsyncLLM whose core is gone, and who tells nobody."""

    errored = False
    observability_config = SimpleNamespace(otlp_traces_endpoint=None)

    def __init__(self) -> None:
        self.told: list[Exception] = []
        self.output_handler = asyncio.get_running_loop().create_future()
        self.output_processor = SimpleNamespace(propagate_error=self.told.append)
        self.engine_core = SimpleNamespace(utility_results={})

    async def add_lora(self, _: object) -> None:
        self.engine_core.utility_results[1] = asyncio.get_running_loop().create_future()
        await self.engine_core.utility_results[1]

    def shutdown(self) -> None:
        self.told.append(RuntimeError("shut down"))


async def test_whoever_waits_for_an_engine_that_is_ended_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are told twice, as one may come while the engine is ended."""
    dead = cast("Any", Dead())
    monkeypatch.setattr(engine_module._sockets, "leave", lambda: None)
    await VllmEngine({}, 0)._end(dead)
    assert [type(error) for error in dead.told] == [EngineDeadError, RuntimeError, EngineDeadError]
    assert dead.output_handler.cancelled()


async def test_an_engine_is_ended_whose_adapters_are_not_pinned_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, engine, begun = Dead(), VllmEngine({}, 0), asyncio.Event()

    async def load_engine(_: object) -> Any:
        return loaded

    async def begin(_: object) -> None:
        begun.set()
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(engine_module, "engine_arguments", lambda given, _: given)
    monkeypatch.setattr(engine_module, "load_engine", load_engine)
    monkeypatch.setattr(engine_module, "statistics_of", lambda _: None)
    monkeypatch.setattr(engine.adapter_slots, "begin", begin)
    creating = asyncio.create_task(engine._create())
    await begun.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert "shut down" in map(str, loaded.told)


async def test_an_adapter_that_an_engine_died_under_is_not_loaded() -> None:
    dead, engine = Dead(), VllmEngine({}, 0)
    engine._supervisor._running = cast("Any", dead)
    engines = Replicas(lambda _: engine)
    engines.members.append(engine)
    adapting = asyncio.create_task(VllmAdapters(engines).load("french", Path("french")))
    while not dead.engine_core.utility_results:
        await asyncio.sleep(0)
    fail_requests(cast("Any", dead))
    with pytest.raises(BackendUnhealthy, match="was not loaded: vLLM's engine died"):
        await adapting
    engine._supervisor._running = None
    with pytest.raises(BackendUnhealthy, match="is starting"):  # another one, which is no fault of the adapter
        await VllmAdapters(engines).load("french", Path("french"))

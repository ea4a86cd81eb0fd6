"""Requests that wait for a slot while adapters are pinned, in an engine that only notes what it is told."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lmi_core.errors import BackendUnhealthy, InvalidAdapter
from lmi_plugins.vllm_engine.adapters.adapter import Adapter
from lmi_plugins.vllm_engine.adapters.slots import AdapterSlots
from lmi_plugins.vllm_engine.library import EngineDeadError, LoRARequest

A, B, C, D = (Adapter(LoRARequest(name, number, f"/no/{name}")) for number, name in enumerate("abcd", 1))


@pytest.fixture(autouse=True)
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no thread look at files, for which the tests would wait."""

    async def checked(self: Adapter, engine: object) -> LoRARequest:
        return self.request

    monkeypatch.setattr(Adapter, "checked", checked)


class Engine:
    def __init__(self, max_loras: int = 2) -> None:
        self.vllm_config = SimpleNamespace(lora_config=SimpleNamespace(max_loras=max_loras))
        self.pinned = set[int]()
        self.told = list[str]()
        self.error: Exception | None = None

    async def add_lora(self, adapter: LoRARequest) -> None:
        if self.error is not None:
            raise self.error
        self.told.append(f"add {adapter.lora_name}")

    async def pin_lora(self, number: int) -> None:
        self.told.append(f"pin {number}")
        self.pinned.add(number)

    async def remove_lora(self, number: int) -> None:
        self.told.append(f"remove {number}")
        self.pinned.discard(number)


class Load:
    """Requests that run until they are told to end."""

    def __init__(self, slots: AdapterSlots) -> None:
        self._slots = slots
        self.running = list[str]()

    def ask(self, adapter: Adapter) -> "Request":
        return Request(self._slots, adapter, self.running)


class Request:
    def __init__(self, slots: AdapterSlots, adapter: Adapter, running: list[str]) -> None:
        self._end = asyncio.Event()
        self._task = asyncio.create_task(self._run(slots, adapter, running))

    async def _run(self, slots: AdapterSlots, adapter: Adapter, running: list[str]) -> None:
        async with slots.one(adapter):
            running.append(adapter.name)
            try:
                await self._end.wait()
            finally:
                running.remove(adapter.name)

    async def end(self) -> None:
        self._end.set()
        await self._task
        await settle()

    async def leave(self) -> None:
        """End as a request whose client is gone."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await settle()


async def settle() -> None:
    for _ in range(10):  # passes of the event loop, more than anything here takes
        await asyncio.sleep(0)


async def create_slots(max_loras: int = 2) -> tuple[AdapterSlots, Engine, Load]:
    slots, engine = AdapterSlots(), Engine(max_loras)
    await slots.begin(cast("Any", engine))
    return slots, engine, Load(slots)


async def test_nothing_waits_while_none_is_pinned() -> None:
    _, engine, load = await create_slots()
    requests = [load.ask(each) for each in (A, B, C, D)]
    await settle()
    assert load.running == ["a", "b", "c", "d"]
    for request in requests:
        await request.end()
    assert engine.told == []


async def test_others_share_what_pinned_ones_leave_in_order_of_arrival() -> None:
    slots, engine, load = await create_slots()
    await slots.pin(A)
    assert engine.told == ["add a", "pin 1"]
    first, second, third = load.ask(B), load.ask(C), load.ask(B)
    pinned = load.ask(A)
    await settle()
    assert load.running == ["b", "a"]  # another of B would keep C waiting
    await first.end()
    assert load.running == ["a", "c"]
    await second.end()
    assert load.running == ["a", "b"]
    await third.end()
    await pinned.end()


async def test_who_leaves_while_it_waits_takes_no_slot() -> None:
    slots, _, load = await create_slots()
    await slots.pin(A)
    first, second, third = load.ask(B), load.ask(C), load.ask(D)
    await settle()
    await second.leave()
    assert load.running == ["b"]
    await first.leave()
    assert load.running == ["d"]
    await third.end()
    last = load.ask(C)
    await settle()
    assert load.running == ["c"]
    await last.end()


async def test_who_leaves_while_it_waits_lets_in_whoever_needs_no_other_slot() -> None:
    slots, _, load = await create_slots()
    await slots.pin(A)
    first, second, third = load.ask(B), load.ask(C), load.ask(B)
    await settle()
    assert load.running == ["b"]  # another of B would keep C waiting
    await second.leave()
    assert load.running == ["b", "b"]
    await first.end()
    await third.end()


async def test_who_leaves_as_it_gets_its_slot_gives_it_back() -> None:
    slots, _, load = await create_slots()
    await slots.pin(A)
    first, second = load.ask(B), load.ask(C)
    await settle()
    first._end.set()
    await first._task  # whose end gives the slot to the second, which has not run since
    await second.leave()
    third = load.ask(D)
    await settle()
    assert load.running == ["d"]
    await third.end()


async def test_a_pin_waits_until_there_is_a_slot() -> None:
    slots, engine, load = await create_slots()
    running = [load.ask(each) for each in (B, C)]
    await settle()
    pinning = asyncio.create_task(slots.pin(A))
    late = load.ask(D)
    await settle()
    assert (pinning.done(), engine.told, load.running) == (False, [], ["b", "c"])
    await running[0].end()
    assert (pinning.done(), engine.pinned, load.running) == (True, {1}, ["c"])
    await running[1].end()
    assert load.running == ["d"]
    await late.end()


async def test_unpinned_is_what_no_request_runs_with() -> None:
    slots, engine, load = await create_slots()
    await slots.pin(A)
    request = load.ask(A)
    await settle()
    slots.unpin(A)
    await settle()
    assert engine.pinned == {1}
    await request.end()
    assert engine.pinned == set()
    await slots.pin(B)
    assert engine.pinned == {2}


async def test_pinned_again_before_it_is_unpinned() -> None:
    slots, engine, load = await create_slots()
    await slots.pin(A)
    request = load.ask(A)
    await settle()
    slots.unpin(A)
    await slots.pin(A)
    await request.end()
    assert engine.pinned == {1}
    slots.unpin(A)
    await slots.pin(A)
    await settle()
    assert engine.pinned == {1}


@pytest.mark.parametrize("max_loras", [1, 2])
async def test_one_slot_is_for_the_others(max_loras: int) -> None:
    slots, engine, _ = await create_slots(max_loras)
    if max_loras == 2:
        await slots.pin(A)
    with pytest.raises(InvalidAdapter, match=f"adapter b cannot be pinned: at most {max_loras - 1} can"):
        await slots.pin(B)
    assert engine.pinned == ({1} if max_loras == 2 else set())
    if max_loras == 2:
        await slots.pin(B, in_place_of=A)
        slots.unpin(A)
        await settle()
        assert engine.pinned == {2}


@pytest.mark.parametrize(
    ("error", "raised"), [(EngineDeadError(), BackendUnhealthy), (RuntimeError("no rank"), RuntimeError)]
)
async def test_a_pin_that_fails_holds_no_slot(error: Exception, raised: type[Exception]) -> None:
    slots, engine, load = await create_slots()
    engine.error = error
    with pytest.raises(raised):
        await slots.pin(A)
    await settle()
    requests = [load.ask(each) for each in (B, C)]
    await settle()
    assert load.running == ["b", "c"]
    for request in requests:
        await request.end()


async def test_the_next_engine_pins_the_same() -> None:
    slots, _, _ = await create_slots(3)
    await slots.pin(A)
    await slots.pin(B)
    slots.unpin(B)
    after = Engine(3)
    await slots.begin(cast("Any", after))
    assert after.pinned == {1}


async def test_an_adapter_that_the_next_engine_cannot_load_is_told(caplog: pytest.LogCaptureFixture) -> None:
    slots, _, load = await create_slots()
    await slots.pin(A)
    after = Engine()
    after.error = RuntimeError("its files are gone")
    await slots.begin(cast("Any", after))
    assert "adapter a is no longer pinned: its files are gone" in caplog.text
    requests = [load.ask(each) for each in (B, C)]
    await settle()
    assert load.running == ["b", "c"]
    for request in requests:
        await request.end()

"""The turns of calls: in order of arrival, and each client's after the other's."""

import asyncio
from collections.abc import Callable

import pytest

from lmi_core.admission import turns as turns_module
from lmi_core.admission.turns import RollingBatch

SECONDS = 60


def read() -> bool:
    return False


class Calls:
    """Calls that hold their turns until they are told to end, and the order in which the turns came."""

    def __init__(self, turns: RollingBatch) -> None:
        self.order: list[str] = []
        self.turns = turns
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, *names: str, count: int = 1, is_unread: Callable[[], bool] = read) -> None:
        """Begin calls of clients: `ann1` is one of the client `ann`."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._call(name, count, is_unread))
            await settle()

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await settle()

    async def leave(self, name: str) -> None:
        self._tasks[name].cancel()
        await settle()

    async def _call(self, name: str, count: int, is_unread: Callable[[], bool]) -> None:
        with self.turns.of(name.rstrip("0123456789"), count, is_unread) as turn:
            await turn.wait()
            self.order.append(name)
            await self._ends[name].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def calls() -> Calls:
    """Calls of an engine that is given 5 sequences, of which it works on one."""
    turns = RollingBatch()
    turns.resize(1, ahead=4)
    return Calls(turns)


FULL = ("ann1", "ann2", "ann3", "ann4", "ann5")


async def test_one_client_s_calls_come_in_order(calls: Calls) -> None:
    await calls.begin(*FULL, "ann6", "ann7")
    assert calls.order == [*FULL]
    await calls.end("ann3", "ann1")
    assert calls.order == [*FULL, "ann6", "ann7"]


async def test_many_calls_of_one_client_starve_no_other(calls: Calls) -> None:
    await calls.begin(*FULL, *(f"ann{i}" for i in range(6, 100)), "bob1", "bob2", "carol1")
    await calls.end(*FULL)
    assert calls.order[5:] == ["ann6", "bob1", "carol1", "ann7", "bob2"]


async def test_a_large_call_is_not_overtaken(calls: Calls) -> None:
    await calls.begin("ann1", "ann2", "ann3")
    await calls.begin("bob1", count=4)
    await calls.begin("carol1")
    await calls.end("ann1")
    assert calls.order == ["ann1", "ann2", "ann3"]
    await calls.end("ann2")
    assert calls.order[3:] == ["bob1"]
    await calls.end("ann3")
    assert calls.order[4:] == ["carol1"]


async def test_a_call_larger_than_the_engine_s_batch_runs_alone(calls: Calls) -> None:
    await calls.begin("ann1")
    await calls.begin("bob1", count=50)
    await calls.end("ann1")
    assert calls.order == ["ann1", "bob1"]


async def test_clients_that_leave(calls: Calls) -> None:
    await calls.begin(*FULL, "ann6", "bob1", "carol1")
    await calls.leave("ann6")  # while it waits
    await calls.leave("ann1")  # while it runs
    assert calls.order[5:] == ["bob1"]
    assert calls.turns.waiting == 1
    await calls.leave("carol1")
    assert calls.turns.waiting == 0
    await calls.end("ann2")
    await calls.begin("dan1")
    assert calls.order[6:] == ["dan1"]


async def test_clients_that_read_nothing_keep_nobody_waiting(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "STALLED", 0.01)
    await calls.begin("ann1", "ann2", "ann3", is_unread=lambda: True)
    await calls.begin("bob1", "bob2", "carol1", "carol2", "carol3", "carol4")
    async with asyncio.timeout(SECONDS):
        while "carol3" not in calls.order:
            await asyncio.sleep(0.01)
    assert calls.order[5:] == ["carol1", "carol2", "carol3"]
    await calls.end("ann1", "ann2", "ann3")
    assert "carol4" not in calls.order
    await calls.end("bob1")
    assert calls.order[-1] == "carol4"

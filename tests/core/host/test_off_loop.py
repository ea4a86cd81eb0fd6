import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lmi_core.errors import InvalidPayload
from lmi_core.host import off_loop
from lmi_core.host.off_loop import (
    HUGE_TEXT,
    LONG_TEXT,
    READING,
    READING_HUGE,
    READING_VERY_LONG,
    VERY_LONG_TEXT,
    WorkThread,
    current_client,
    read_in_steps,
    run_off_loop,
)

LIMIT = 60.0
LONG = LONG_TEXT + 1


class Held:
    """A thread with work that ends on request."""

    def __init__(self, beside: WorkThread) -> None:
        self.release = threading.Event()
        self._task = asyncio.ensure_future(beside.run(self.release.wait))

    async def end(self) -> None:
        self.release.set()
        await self._task


async def of(client: str, work: Callable[[], None], beside: WorkThread) -> None:
    current_client.set(client)
    await beside.run(work)


@pytest.mark.parametrize(
    ("size", "beside"),
    [
        (LONG, READING_VERY_LONG),
        (LONG, READING_HUGE),
        (VERY_LONG_TEXT + 1, READING_HUGE),
        (VERY_LONG_TEXT + 1, READING),
    ],
)
async def test_work_does_not_wait_for_work_on_much_longer_or_shorter_texts(size: int, beside: WorkThread) -> None:
    held = Held(beside)
    assert await asyncio.wait_for(run_off_loop(size, lambda: 3), LIMIT) == 3
    await held.end()


async def test_clients_take_turns() -> None:
    beside, order = WorkThread("test"), list[str]()
    held = Held(beside)
    tasks = [
        asyncio.ensure_future(of(name[0], lambda name=name: order.append(name), beside))  # type: ignore[misc]
        for name in ("a1", "a2", "a3", "b1")
    ]
    await asyncio.sleep(0)
    await held.end()
    await asyncio.gather(*tasks)
    assert order == ["a1", "b1", "a2", "a3"]


async def test_cancelled_work_does_not_start() -> None:
    beside, ran = WorkThread("test"), list[int]()
    held = Held(beside)
    waiting = asyncio.ensure_future(beside.run(lambda: ran.append(1)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await asyncio.sleep(0)  # the thread's work is cancelled after the task
    await held.end()
    await beside.run(lambda: ran.append(2))
    assert ran == [2]


async def test_errors_are_those_of_the_work() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_off_loop(LONG, lambda: 1 // 0)


def endless(advanced: threading.Event) -> Iterator[None]:
    while True:
        time.sleep(0)
        advanced.set()
        yield


async def test_others_have_turns_between_steps_which_end_with_their_task() -> None:
    advanced, sizes = threading.Event(), (LONG, VERY_LONG_TEXT + 1, HUGE_TEXT + 1)
    for size in sizes:
        task: asyncio.Future[None] = asyncio.ensure_future(read_in_steps(size, lambda: endless(advanced)))
        async with asyncio.timeout(LIMIT):
            while not await run_off_loop(size, advanced.is_set):
                await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await run_off_loop(size, advanced.clear)  # after the last step
        await run_off_loop(size, lambda: None)
        assert not advanced.is_set()


async def test_steps_take_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(off_loop, "seconds_for", lambda size: 0.1)
    with pytest.raises(InvalidPayload, match=r"the text takes more than 0\.1 seconds of processor time"):
        await asyncio.wait_for(read_in_steps(LONG, lambda: endless(threading.Event())), LIMIT)


@pytest.mark.parametrize("size", [1, LONG])
async def test_the_result_of_steps(size: int) -> None:
    assert await read_in_steps(size, lambda: iter([None, None, 3, 4])) == 3


async def test_memory_is_returned_once_after_very_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    returned = asyncio.Queue[int]()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(off_loop, "REST_SECONDS", 0.01)
    monkeypatch.setattr(off_loop, "return_free_memory", lambda: loop.call_soon_threadsafe(returned.put_nowait, 1))
    await asyncio.gather(*[run_off_loop(size, lambda: None) for size in (LONG, VERY_LONG_TEXT + 1, HUGE_TEXT + 1)])
    await asyncio.wait_for(returned.get(), LIMIT)
    await run_off_loop(LONG, lambda: None)
    assert returned.empty()

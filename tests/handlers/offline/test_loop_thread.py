"""A loop in a thread, and what becomes of its work when its caller is gone."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from lmi_handlers.offline.loop_thread import LoopThread


def test_work_that_is_unfinished_at_the_end_is_cancelled() -> None:
    thread, cancelled = LoopThread(), []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    tasks = []

    async def begin() -> None:
        tasks.append(asyncio.create_task(forever()))
        await asyncio.sleep(0)

    thread.run(begin())
    thread.close()
    assert (cancelled, thread.closed) == ([True], True)


def test_generator_is_closed_with_its_iterator() -> None:
    thread, closed = LoopThread(), []

    async def count() -> AsyncGenerator[int, None]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(True)

    numbers = thread.iterate(count())
    assert [next(numbers), next(numbers)] == [0, 1]
    del numbers
    assert closed == [True]
    thread.close()


def test_errors_reach_the_caller() -> None:
    thread = LoopThread()

    async def fail() -> None:
        raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        thread.run(fail())
    thread.close()

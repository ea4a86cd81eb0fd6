"""Which streams wait for more of their tokens, and how long."""

import asyncio
from contextlib import ExitStack

import pytest

from lmi_core import gathering
from lmi_core.gathering import TICK, Gathering

MANY = 100


def never() -> bool:
    return False


def waits(gathering: Gathering) -> bool:
    """Whether a stream that would wait now does."""
    wait = gathering.wait(never)
    try:
        wait.send(None)
    except StopIteration:
        return False
    wait.close()
    return True


@pytest.mark.parametrize(("longest", "streams", "expected"), [(1, 1, False), (1, 5, False), (1, MANY, True)])
async def test_only_many_streams_wait(longest: float, streams: int, expected: bool) -> None:
    found = Gathering(longest)
    with ExitStack() as stack:
        for _ in range(streams):
            stack.enter_context(found.stream())
        assert waits(found) == expected
    assert not waits(found)  # they are over


async def test_nobody_waits_longer_than_allowed() -> None:
    with ExitStack() as stack:
        none, short = Gathering(0), Gathering(2 * TICK)
        for _ in range(MANY):
            stack.enter_context(none.stream())
            stack.enter_context(short.stream())
        assert not waits(none)
        begun = asyncio.get_running_loop().time()
        async with asyncio.timeout(30):
            await short.wait(never)
        assert asyncio.get_running_loop().time() - begun >= 2 * TICK


async def test_a_stream_that_ends_waits_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "SECONDS_PER_STREAM", 1000)
    found, ended = Gathering(1000), asyncio.Event()
    with found.stream():
        left = asyncio.create_task(found.wait(never))
        going = asyncio.create_task(found.wait(never))
        ending = asyncio.create_task(found.wait(ended.is_set))
        await asyncio.sleep(0)
        left.cancel()
        ended.set()
        async with asyncio.timeout(30):
            await ending
        assert left.cancelled()
        assert not going.done()
        going.cancel()

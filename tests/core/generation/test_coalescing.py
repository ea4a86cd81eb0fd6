"""Output coalescing: the streams that wait for more tokens, and how long."""

import asyncio
from contextlib import ExitStack, closing

import pytest

from lmi_core.generation import coalescing
from lmi_core.generation.coalescing import MAX_UNDELAYED_STREAMS, TICK, CoalescedStream, OutputCoalescing
from tests.virtual_time import in_virtual_time

MANY = 100


def waits(stream: CoalescedStream) -> bool:
    """Whether it would wait now."""
    wait = stream.wait()
    try:
        wait.send(None)
    except StopIteration:
        return False
    wait.close()
    return True


@pytest.mark.parametrize(
    ("longest", "streams", "expected"),
    [(1, 1, False), (1, MAX_UNDELAYED_STREAMS, False), (1, MAX_UNDELAYED_STREAMS + 1, True)],
)
async def test_only_many_streams_wait(longest: float, streams: int, expected: bool) -> None:
    engine = OutputCoalescing(longest)
    with ExitStack() as stack:
        for _ in range(streams):
            stream = stack.enter_context(closing(engine.begin()))
        assert waits(stream) == expected
    assert not waits(stream)  # they are over


@in_virtual_time
async def test_nobody_waits_longer_than_allowed() -> None:
    with ExitStack() as stack:
        none, short = OutputCoalescing(0), OutputCoalescing(2 * TICK)
        for _ in range(MANY):
            unhurried = stack.enter_context(closing(none.begin()))
            hurried = stack.enter_context(closing(short.begin()))
        assert not waits(unhurried)
        begun = asyncio.get_running_loop().time()
        await hurried.wait()
        await hurried.wait()
        assert 4 * TICK <= asyncio.get_running_loop().time() - begun <= 6 * TICK  # each is seen at the next tick


async def test_a_stream_waits_neither_at_nor_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing, "MAX_UNDELAYED_STREAMS", 0)
    monkeypatch.setattr(coalescing, "SECONDS_PER_STREAM", 1000)
    found = OutputCoalescing(1000)
    stream, other, leaving = (found.begin() for _ in range(3))
    waiting, going, left = (asyncio.create_task(each.wait()) for each in (stream, other, leaving))
    await asyncio.sleep(0)
    left.cancel()
    stream.end()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert waiting.done()
    assert left.cancelled()
    assert not going.done()
    assert not waits(stream)
    other.end()
    await going

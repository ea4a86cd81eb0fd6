"""Isolation of requests in an engine, together and alone, and their order."""

import asyncio

import pytest

from lmi_core.workers.isolation import Isolation


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_are_in_it_together() -> None:
    isolation = Isolation()
    presences = [await isolation.enter() for _ in range(3)]
    assert isolation.inside == 3
    for presence in presences:
        isolation.leave(presence)
        isolation.leave(presence)
    assert isolation.inside == 0


async def test_one_alone_waits_for_others_and_goes_before_new_ones() -> None:
    isolation = Isolation()
    first = await isolation.enter()
    alone, next_alone, later = (
        asyncio.create_task(each) for each in (isolation.enter_alone(), isolation.enter_alone(), isolation.enter())
    )
    await settle()
    assert not alone.done()
    isolation.leave(first)
    await settle()
    assert (alone.done(), next_alone.done(), later.done(), isolation.inside) == (True, False, False, 1)
    isolation.leave(alone.result())
    await settle()
    assert (next_alone.done(), later.done(), isolation.inside) == (True, False, 1)
    isolation.share(next_alone.result())
    await settle()
    assert (later.done(), isolation.inside) == (True, 2)


async def test_those_that_want_to_be_alone_do_not_wait_for_a_dead_engine() -> None:
    isolation = Isolation()
    slow = await isolation.enter()
    isolation.clear()
    alone = await isolation.enter_alone()
    waiting = asyncio.create_task(isolation.enter())
    isolation.leave(slow)  # its client has read at last what it got before
    await settle()
    assert not waiting.done()
    isolation.leave(alone)
    await waiting
    assert isolation.inside == 1


@pytest.mark.parametrize("let_in", [False, True])
async def test_whoever_gives_up_waiting_holds_nobody_up(let_in: bool) -> None:
    isolation = Isolation()
    first = await isolation.enter_alone()
    leaving, other = asyncio.create_task(isolation.enter_alone()), asyncio.create_task(isolation.enter())
    await settle()
    if let_in:
        isolation.leave(first)
    leaving.cancel()
    await settle()
    assert leaving.cancelled()
    isolation.leave(first)
    await settle()
    assert other.done()
    assert isolation.inside == 1

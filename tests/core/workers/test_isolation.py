"""Turns of requests in an engine, together and alone, and their order."""

import asyncio

import pytest

from lmi_core.workers.isolation import Turns


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_are_in_it_together() -> None:
    turns = Turns()
    places = [await turns.enter() for _ in range(3)]
    assert turns.inside == 3
    for place in places:
        turns.leave(place)
        turns.leave(place)
    assert turns.inside == 0


async def test_one_alone_waits_for_others_and_goes_before_new_ones() -> None:
    turns = Turns()
    first = await turns.enter()
    alone, next_alone, later = (
        asyncio.create_task(each) for each in (turns.enter_alone(), turns.enter_alone(), turns.enter())
    )
    await settle()
    assert not alone.done()
    turns.leave(first)
    await settle()
    assert (alone.done(), next_alone.done(), later.done(), turns.inside) == (True, False, False, 1)
    turns.leave(alone.result())
    await settle()
    assert (next_alone.done(), later.done(), turns.inside) == (True, False, 1)
    turns.share(next_alone.result())
    await settle()
    assert (later.done(), turns.inside) == (True, 2)


async def test_those_that_want_to_be_alone_do_not_wait_for_a_dead_engine() -> None:
    turns = Turns()
    slow = await turns.enter()
    turns.clear()
    alone = await turns.enter_alone()
    waiting = asyncio.create_task(turns.enter())
    turns.leave(slow)  # its client has read at last what it got before
    await settle()
    assert not waiting.done()
    turns.leave(alone)
    await waiting
    assert turns.inside == 1


@pytest.mark.parametrize("let_in", [False, True])
async def test_whoever_gives_up_waiting_holds_nobody_up(let_in: bool) -> None:
    turns = Turns()
    first = await turns.enter_alone()
    leaving, other = asyncio.create_task(turns.enter_alone()), asyncio.create_task(turns.enter())
    await settle()
    if let_in:
        turns.leave(first)
    leaving.cancel()
    await settle()
    assert leaving.cancelled()
    turns.leave(first)
    await settle()
    assert other.done()
    assert turns.inside == 1

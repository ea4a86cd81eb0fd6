"""Engines that answer, compute for long, or do nothing any more, in virtual time."""

import asyncio

import pytest

from lmi_core.workers.heartbeat import LOOKS, PATIENCE, Heartbeat
from tests.virtual_time import VirtualTimeLoop, in_virtual_time


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_a_silent_engine_is_frozen_in_time() -> None:
    asked: list[float] = []
    why = await Heartbeat(60).wait_frozen(lambda: asked.append(now()))
    assert why == "gave no sign of life for 60 seconds (option.heartbeat_timeout)"
    assert now() == pytest.approx(60)
    assert asked == pytest.approx([12, 24, 36, 48, 60])


@in_virtual_time
async def test_an_idle_engine_that_answers_is_not() -> None:
    heartbeat, asked = Heartbeat(10), list[float]()

    def ask() -> None:
        asked.append(now())
        asyncio.get_running_loop().call_later(
            1.5 * 10 / LOOKS, setattr, heartbeat, "heard", True
        )  # at the end of a step

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(heartbeat.wait_frozen(ask), 1000)
    assert asked


@pytest.mark.parametrize(("computed", "seconds"), [(100, 160), (10**6, 60 * PATIENCE)])
@in_virtual_time
async def test_an_engine_that_computes_gets_longer_but_not_for_good(computed: float, seconds: float) -> None:
    """One engine computes for some seconds, and then does nothing; the other computes without end."""

    async def computes() -> bool:
        return now() < computed

    why = await Heartbeat(60).wait_frozen(lambda: None, computes)
    assert now() == pytest.approx(seconds, abs=60 / LOOKS)
    assert why == f"gave no sign of life for {now():g} seconds (option.heartbeat_timeout)"


@in_virtual_time
async def test_an_engine_that_computed_for_long_begins_anew_with_its_answer() -> None:
    heartbeat = Heartbeat(10)

    async def computes() -> bool:
        return True

    asyncio.get_running_loop().call_later(90, setattr, heartbeat, "heard", True)
    await heartbeat.wait_frozen(lambda: None, computes)
    assert now() == pytest.approx(90 + 10 * PATIENCE, abs=10 / LOOKS)


@in_virtual_time
async def test_an_engine_that_speaks_by_itself_is_not_asked() -> None:
    heartbeat = Heartbeat(10)

    async def speak() -> None:
        for _ in range(500):
            heartbeat.heard = True
            await asyncio.sleep(1)

    def ask() -> None:
        raise AssertionError("was asked")

    watching = asyncio.create_task(heartbeat.wait_frozen(ask))
    await speak()
    assert not watching.done()
    watching.cancel()


@in_virtual_time
async def test_an_engine_is_not_blamed_while_this_process_is_stopped() -> None:
    heartbeat, loop = Heartbeat(10), asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    watching = asyncio.create_task(heartbeat.wait_frozen(lambda: None))
    await asyncio.sleep(1)
    loop.pass_time(3600)
    await asyncio.sleep(3)
    assert not watching.done()
    assert await watching


@in_virtual_time
async def test_no_timeout() -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Heartbeat(0).wait_frozen(lambda: None), 10**6)

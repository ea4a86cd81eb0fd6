import asyncio
from collections.abc import AsyncGenerator

import pytest

from lmi_core.errors import GenerationTimeout
from lmi_core.serving.running import RunningCall, RunningCalls
from tests.virtual_time import VirtualTimeLoop, in_virtual_time


class Engine:
    """Says one word, and then nothing until it is closed."""

    def __init__(self) -> None:
        self.said = asyncio.Event()
        self.closed = False

    async def steps(self) -> AsyncGenerator[str, None]:
        try:
            yield "one"
            self.said.set()
            await asyncio.Event().wait()
        finally:
            self.closed = True


async def collect(
    calls: RunningCalls, steps: AsyncGenerator[str, None], request_id: str = "r", predict_timeout: float = 60
) -> tuple[list[str], bool]:
    """Return the steps received, and whether the call was aborted."""
    with calls.call(request_id, predict_timeout) as call:
        return [step async for step in call.until_aborted(steps)], call.aborted


async def abort(calls: RunningCalls, engine: Engine) -> tuple[list[str], bool]:
    task = asyncio.create_task(collect(calls, engine.steps()))
    await engine.said.wait()
    assert calls.abort("r")
    return await task


async def test_abort_ends_the_wait_for_the_next_step() -> None:
    engine = Engine()
    assert await abort(RunningCalls(), engine) == (["one"], True)
    assert engine.closed


async def test_abort_again_while_the_engine_is_being_closed() -> None:
    closing, closed = asyncio.Event(), asyncio.Event()

    async def steps() -> AsyncGenerator[str, None]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            closing.set()
            await closed.wait()

    calls = RunningCalls()
    task = asyncio.create_task(collect(calls, steps()))
    while not calls.abort("r"):
        await asyncio.sleep(0)
    await closing.wait()
    assert calls.abort("r")
    closed.set()
    assert (await task)[1]


async def test_abort_while_a_step_is_sent() -> None:
    calls, engine = RunningCalls(), Engine()
    seen: list[str] = []
    with calls.call("r", 60) as call:
        async for step in call.until_aborted(engine.steps()):
            seen.append(step)
            calls.abort("r")
            await asyncio.sleep(0)  # where a cancelled task would notice
    assert (seen, engine.closed) == (["one"], True)


@in_virtual_time
async def test_a_step_that_comes_as_the_call_is_aborted_is_sent() -> None:
    coming: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def steps() -> AsyncGenerator[str, None]:
        yield await coming

    calls, seen = RunningCalls(), []
    with calls.call("r", 60) as call:
        asyncio.get_running_loop().call_soon(coming.set_result, "one")
        asyncio.get_running_loop().call_soon(calls.abort, "r")
        async for step in call.until_aborted(steps()):
            await asyncio.sleep(0.01)  # the abort's own cancellation would come here
            seen.append(step)
    assert (seen, call.aborted) == (["one"], True)


async def test_aborting_twice() -> None:
    calls, engine = RunningCalls(), Engine()
    task = asyncio.create_task(collect(calls, engine.steps()))
    await engine.said.wait()
    assert calls.abort("r")
    assert calls.abort("r")
    assert await task == (["one"], True)


async def test_an_unknown_id_or_one_that_has_ended() -> None:
    calls = RunningCalls()
    assert not calls.abort("r")
    await abort(calls, Engine())
    assert not calls.abort("r")


async def test_calls_of_the_same_id() -> None:
    calls, engines, other = RunningCalls(), [Engine(), Engine()], Engine()
    tasks = [asyncio.create_task(collect(calls, engine.steps())) for engine in engines]
    others = asyncio.create_task(collect(calls, other.steps(), "s"))
    await asyncio.gather(*(engine.said.wait() for engine in (*engines, other)))
    assert calls.abort("r")
    assert await asyncio.gather(*tasks) == [(["one"], True)] * 2
    assert (all(engine.closed for engine in engines), other.closed) == (True, False)
    others.cancel()
    with pytest.raises(asyncio.CancelledError):
        await others
    assert not calls.abort("s")


async def test_errors_pass_through() -> None:
    async def failing() -> AsyncGenerator[str, None]:
        yield "one"
        raise TimeoutError("the engine's own")

    with pytest.raises(TimeoutError, match="the engine's own"):
        await collect(RunningCalls(), failing())


@in_virtual_time
async def test_a_step_that_does_not_come() -> None:
    engine = Engine()
    with pytest.raises(
        GenerationTimeout, match=r"no generation step was received within option.predict_timeout=0.05 seconds"
    ):
        await collect(RunningCalls(), engine.steps(), predict_timeout=0.05)
    assert engine.closed


@in_virtual_time
async def test_the_limit_holds_on_after_a_step_that_came_just_in_time() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    coming: asyncio.Future[str] = loop.create_future()

    async def steps() -> AsyncGenerator[str, None]:
        yield await coming
        await asyncio.Event().wait()

    with RunningCalls().call("r", 0.06) as call:
        waits = call.until_aborted(steps())
        loop.call_later(0.05, coming.set_result, "one")
        loop.call_soon(loop.pass_time, 0.1)  # then the step and the limit are due at once, in this order
        assert await anext(waits) == "one"
        with pytest.raises(GenerationTimeout):
            await anext(waits)


async def paced(pause: float) -> AsyncGenerator[str, None]:
    for word in ("one", "two", "three"):
        await asyncio.sleep(pause)
        yield word


@pytest.mark.parametrize(("engine", "client"), [(0.14, 0.0), (0.0, 0.2)], ids=["many steps", "a slow client"])
@in_virtual_time
async def test_only_each_wait_for_the_engine_counts(engine: float, client: float) -> None:
    seen = []
    with RunningCalls().call("r", 0.15) as call:
        async for step in call.until_aborted(paced(engine)):
            await asyncio.sleep(client)
            seen.append(step)
    assert seen == ["one", "two", "three"]


@in_virtual_time
async def test_a_wait_for_a_place_does_not_count() -> None:
    async def steps(call: RunningCall) -> AsyncGenerator[str, None]:
        call.wait_for_place()
        await asyncio.sleep(0.2)
        call.wait_for_step()
        yield "one"
        await asyncio.Event().wait()

    with RunningCalls().call("r", 0.1) as call:
        waits = call.until_aborted(steps(call))
        assert await anext(waits) == "one"
        with pytest.raises(GenerationTimeout):
            await anext(waits)

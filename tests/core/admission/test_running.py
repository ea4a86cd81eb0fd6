import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from lmi_core.admission.running import RunningCall, RunningCalls
from lmi_core.admission.time_limits import TimeLimits
from lmi_core.admission.turns import Turn
from lmi_core.errors import GenerationTimeout, LmiError, QueueTimeout
from lmi_core.workers.resumption import EngineTime
from tests.virtual_time import VirtualTimeLoop, in_virtual_time

NO_LIMITS = TimeLimits()


async def until_aborted(
    call: RunningCall, steps: AsyncGenerator[str, None], turn: Turn | None = None
) -> AsyncGenerator[str, None]:
    """Yield the steps as a served call does."""
    turn = turn or Turn(1, lambda: False)
    async with call.watched():
        await call.wait_for(turn)
        async with aclosing(steps):
            async for step in steps:
                call.waits = False
                if call.is_cut:
                    call.drop_interruption()
                yield step
                if not call.begin_step():
                    break


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
    calls: RunningCalls, steps: AsyncGenerator[str, None], request_id: str = "r", limits: TimeLimits = NO_LIMITS
) -> tuple[list[str], bool]:
    """Return the steps received, and whether the call was aborted."""
    with calls.call(request_id, limits) as call:
        return [step async for step in until_aborted(call, steps)], call.aborted


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
    with calls.call("r", NO_LIMITS) as call:
        async for step in until_aborted(call, engine.steps()):
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
    with calls.call("r", NO_LIMITS) as call:
        asyncio.get_running_loop().call_soon(coming.set_result, "one")
        asyncio.get_running_loop().call_soon(calls.abort, "r")
        async for step in until_aborted(call, steps()):
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


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (TimeLimits(inter_token=0.05), "no further token was generated within option.inter_token_timeout=0.05 seconds"),
        (TimeLimits(queue=0.01, first_token=0.02, inter_token=0.5), "option.inter_token_timeout=0.5 seconds"),
    ],
)
@in_virtual_time
async def test_a_further_token_that_does_not_come(limits: TimeLimits, message: str) -> None:
    engine = Engine()
    with pytest.raises(GenerationTimeout, match=message):
        await collect(RunningCalls(), engine.steps(), limits=limits)
    assert engine.closed
    assert asyncio.get_running_loop().time() == pytest.approx(limits.inter_token)


@in_virtual_time
async def test_the_limit_holds_on_after_a_step_that_came_just_in_time() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    coming: asyncio.Future[str] = loop.create_future()

    async def steps() -> AsyncGenerator[str, None]:
        yield await coming
        await asyncio.Event().wait()

    with RunningCalls().call("r", TimeLimits(first_token=0.06, inter_token=0.06)) as call:
        waits = until_aborted(call, steps())
        loop.call_later(0.05, coming.set_result, "one")
        loop.call_soon(loop.pass_time, 0.1)  # then the step and the limit are due at once, in this order
        assert await anext(waits) == "one"
        with pytest.raises(GenerationTimeout, match="no further token"):
            await anext(waits)


async def paced(pause: float) -> AsyncGenerator[str, None]:
    for word in ("one", "two", "three"):
        await asyncio.sleep(pause)
        yield word


@pytest.mark.parametrize(("engine", "client"), [(0.14, 0.0), (0.0, 0.2)], ids=["many steps", "a slow client"])
@in_virtual_time
async def test_only_each_wait_for_the_engine_counts(engine: float, client: float) -> None:
    seen = []
    with RunningCalls().call("r", TimeLimits(first_token=0.15, inter_token=0.15)) as call:
        async for step in until_aborted(call, paced(engine)):
            await asyncio.sleep(client)
            seen.append(step)
    assert seen == ["one", "two", "three"]


class Phases:
    """A call that waits for its turn, then for its first token, then for others, for as long as told."""

    def __init__(self, queue: float = 0, first_token: float = 0, inter_token: float = 0) -> None:
        self.pauses = (first_token, inter_token, inter_token)
        self.queue = queue
        self.closed = False

    def begin(self, call: RunningCall) -> AsyncGenerator[str, None]:
        turn = Turn(1, lambda: False)
        if self.queue:
            turn.defer()
            asyncio.get_running_loop().call_later(self.queue, turn.begin)
        return until_aborted(call, self.steps(), turn)

    async def steps(self) -> AsyncGenerator[str, None]:
        try:
            for pause in self.pauses:
                await asyncio.sleep(pause)
                yield "word"
        finally:
            self.closed = True


LIMITS = TimeLimits(queue=3, first_token=2, inter_token=1)
QUEUED = "the request did not begin within option.queue_timeout=3 seconds"
FIRST = "no first token was generated within option.first_token_timeout=2 seconds"
FURTHER = "no further token was generated within option.inter_token_timeout=1 seconds"


@pytest.mark.parametrize(
    ("phases", "after", "error"),
    [
        (Phases(queue=9), 3, QUEUED),
        (Phases(2.9, 9), 4.9, FIRST),
        (Phases(2.9, 1.9, 9), 5.8, FURTHER),
        (Phases(2.9, 1.9, 0.9), 6.6, None),
    ],
)
@in_virtual_time
async def test_each_phase_has_its_own_limit(phases: Phases, after: float, error: str | None) -> None:
    raised: LmiError | None = None
    with RunningCalls().call("r", LIMITS) as call:
        try:
            seen = [word async for word in phases.begin(call)]
        except LmiError as found:
            raised = found
        else:
            assert seen == ["word"] * 3
    assert (raised and raised.message, phases.closed) == (error, error != QUEUED)
    assert asyncio.get_running_loop().time() == pytest.approx(after)
    assert isinstance(raised, QueueTimeout) == (after == 3)


@in_virtual_time
async def test_a_wait_for_the_turn_does_not_count_toward_the_first_token() -> None:
    """Otherwise a queue would end with errors while its engine is being replaced."""
    with RunningCalls().call("r", TimeLimits(first_token=2, inter_token=1)) as call:
        assert [word async for word in Phases(300, 1.9, 0.9).begin(call)] == ["word"] * 3


async def be_replaced(time: EngineTime, after: float, takes: float) -> None:
    """Have a call's engine replaced after some seconds, for which it takes some more."""
    with time.in_engine():
        await asyncio.sleep(after)
    await asyncio.sleep(takes)
    with time.in_engine():
        await asyncio.sleep(1000)


@pytest.mark.parametrize(
    ("died", "takes", "phases", "after", "message"),
    [
        (0.5, 60, Phases(inter_token=99), 61.5, FURTHER),
        (0.5, 60, Phases(inter_token=61.4), None, None),  # within a second of the next engine
        (1.5, 60, Phases(inter_token=99), 1, FURTHER),  # too late for this call
        (0.5, 0.1, Phases(inter_token=99), 1.6, FURTHER),
        (1.5, 60, Phases(first_token=99), 63.5, FIRST),
        (0.5, 60, Phases(queue=99), 3, QUEUED),  # which nobody begins to answer
    ],
)
@in_virtual_time
async def test_waits_for_tokens_begin_anew_with_another_engine(
    died: float, takes: float, phases: Phases, after: float | None, message: str | None
) -> None:
    raised: LmiError | None = None
    with RunningCalls().call("r", LIMITS) as call:
        engine = asyncio.create_task(be_replaced(call.engine_time, died, takes))
        try:
            async for _ in phases.begin(call):
                if after is None:
                    break
        except LmiError as found:
            raised = found
    engine.cancel()
    assert (raised and raised.message) == message
    if after is not None:
        assert asyncio.get_running_loop().time() == pytest.approx(after)


@in_virtual_time
async def test_a_limit_costs_no_timer_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    timers: list[float] = []
    call_later = loop.call_later

    def counted(delay: float, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        timers.append(delay)
        return call_later(delay, *args, **kwargs)

    async def steps() -> AsyncGenerator[str, None]:
        for _ in range(1000):
            loop.pass_time(0.01)  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            yield "word"

    monkeypatch.setattr(loop, "call_later", counted)
    with RunningCalls().call("r", TimeLimits(5, 5, 5)) as call:
        assert len([word async for word in until_aborted(call, steps())]) == 1000
    assert len(timers) <= 4  # in ten seconds


@in_virtual_time
async def test_no_limit_has_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(asyncio.BaseEventLoop, "call_later")
    with RunningCalls().call("r", NO_LIMITS) as call:
        assert [word async for word in Phases().begin(call)] == ["word"] * 3

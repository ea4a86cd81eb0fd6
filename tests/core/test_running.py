import asyncio
from collections.abc import AsyncGenerator

import pytest

from lmi_core.extended_parameters import ExtendedParameters
from lmi_core.generation import FinishReason, GenerationStep, Token
from lmi_core.merge import PromptStep
from lmi_core.request import ValidRequest
from lmi_core.running import RunningCalls


class Engine:
    """Says one token for the first sequence of the first prompt, and then nothing until it is closed."""

    def __init__(self, finish_first: bool = False) -> None:
        self.said = asyncio.Event()
        self.closed = False
        self._reason: FinishReason | None = "length" if finish_first else None

    async def steps(self) -> AsyncGenerator[PromptStep, None]:
        try:
            yield 0, GenerationStep([Token(1, "one")], self._reason)
            self.said.set()
            await asyncio.Event().wait()
        finally:
            self.closed = True


def requests(prompts: int = 1, n: int = 1) -> list[ValidRequest]:
    return [ValidRequest("r", "a", [1], ExtendedParameters(n=n)) for _ in range(prompts)]


async def collect(steps: AsyncGenerator[PromptStep, None]) -> list[tuple[int, int, str | None]]:
    async with asyncio.timeout(5):
        return [(place, step.sequence_index, step.finish_reason) async for place, step in steps]


async def abort(calls: RunningCalls, engine: Engine, of: list[ValidRequest]) -> list[tuple[int, int, str | None]]:
    task = asyncio.create_task(collect(calls.until_aborted("r", of, engine.steps())))
    await engine.said.wait()
    assert calls.abort("r")
    return await task


async def test_abort_ends_the_wait_for_the_next_step() -> None:
    calls, engine = RunningCalls(), Engine()
    assert await abort(calls, engine, requests()) == [(0, 0, None), (0, 0, "abort")]
    assert engine.closed


async def test_every_unfinished_sequence_is_aborted() -> None:
    steps = await abort(RunningCalls(), Engine(finish_first=True), requests(prompts=2, n=2))
    assert steps == [(0, 0, "length"), (0, 1, "abort"), (1, 0, "abort"), (1, 1, "abort")]


async def test_abort_while_a_step_is_sent() -> None:
    calls, engine = RunningCalls(), Engine()
    seen: list[str | None] = []
    async for _, step in calls.until_aborted("r", requests(), engine.steps()):
        seen.append(step.finish_reason)
        calls.abort("r")
        await asyncio.sleep(0)  # where a cancelled task would notice
    assert seen == [None, "abort"]
    assert engine.closed


async def test_aborting_twice() -> None:
    calls, engine = RunningCalls(), Engine()
    task = asyncio.create_task(collect(calls.until_aborted("r", requests(), engine.steps())))
    await engine.said.wait()
    assert calls.abort("r")
    assert calls.abort("r")
    assert (await task)[-1] == (0, 0, "abort")


async def test_an_unknown_id_or_one_that_has_ended() -> None:
    calls, engine = RunningCalls(), Engine()
    assert not calls.abort("r")
    await abort(calls, engine, requests())
    assert not calls.abort("r")


async def test_calls_of_the_same_id() -> None:
    calls, engines = RunningCalls(), [Engine(), Engine()]
    tasks = [asyncio.create_task(collect(calls.until_aborted("r", requests(), e.steps()))) for e in engines]
    await asyncio.gather(*(engine.said.wait() for engine in engines))
    other = Engine()
    others = asyncio.create_task(collect(calls.until_aborted("s", requests(), other.steps())))
    await other.said.wait()
    assert calls.abort("r")
    await asyncio.gather(*tasks)
    assert (all(engine.closed for engine in engines), other.closed) == (True, False)
    others.cancel()
    with pytest.raises(asyncio.CancelledError):
        await others
    assert not calls.abort("s")


async def test_errors_pass_through() -> None:
    async def failing() -> AsyncGenerator[PromptStep, None]:
        yield 0, GenerationStep([])
        raise TimeoutError("the engine's own")

    with pytest.raises(TimeoutError, match="the engine's own"):
        await collect(RunningCalls().until_aborted("r", requests(), failing()))

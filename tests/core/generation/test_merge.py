import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from lmi_core.errors import GenerationFailed
from lmi_core.generation.merge import merge
from lmi_core.generation.output import GenerationStep, Token


class Stream:
    """Yields the texts that a test says, and knows whether it was closed."""

    def __init__(self, *texts: str, ends: bool = False) -> None:
        self.said: asyncio.Queue[str | Exception | None] = asyncio.Queue()
        self.closed = False
        for text in texts:
            self.said.put_nowait(text)
        if ends:
            self.said.put_nowait(None)

    async def steps(self) -> AsyncGenerator[GenerationStep, None]:
        try:
            while (item := await self.said.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield GenerationStep([Token(0, item)])
        finally:
            self.closed = True


def text(step: GenerationStep) -> tuple[int, str]:
    return step.prompt_index, step.tokens[0].text


async def all_of(*streams: Stream) -> list[tuple[int, str]]:
    async with asyncio.timeout(60):
        return [text(item) async for item in merge([stream.steps() for stream in streams], of_prompts=True)]


async def test_no_streams() -> None:
    assert await all_of() == []


async def test_each_stream_keeps_its_order() -> None:
    streams = [Stream("a", "b", "c", ends=True), Stream(ends=True), Stream("d", "e", ends=True)]
    merged = await all_of(*streams)
    assert [item for item in merged if item[0] == 0] == [(0, "a"), (0, "b"), (0, "c")]
    assert [item for item in merged if item[0] == 2] == [(2, "d"), (2, "e")]
    assert len(merged) == 5
    assert all(stream.closed for stream in streams)


async def test_steps_come_as_they_are_ready() -> None:
    streams = [Stream(), Stream()]
    order = [(1, "a"), (0, "b"), (0, "c"), (1, "d")]
    async with asyncio.timeout(60), aclosing(merge([stream.steps() for stream in streams], of_prompts=True)) as merged:
        for prompt_index, word in order:
            streams[prompt_index].said.put_nowait(word)
            assert text(await anext(merged)) == (prompt_index, word)


async def test_error_in_one_closes_all() -> None:
    streams = [Stream(), Stream("a"), Stream()]
    error = GenerationFailed("broken")
    streams[1].said.put_nowait(error)
    async with asyncio.timeout(60):
        merged = merge([stream.steps() for stream in streams], of_prompts=True)
        assert text(await anext(merged)) == (1, "a")
        with pytest.raises(GenerationFailed) as raised:
            await anext(merged)
    assert raised.value is error
    assert all(stream.closed for stream in streams)


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_closing_early_closes_all(count: int) -> None:
    streams = [Stream("a") for _ in range(count)]
    async with asyncio.timeout(60):
        merged = merge([stream.steps() for stream in streams], of_prompts=True)
        await anext(merged)
        await merged.aclose()
    assert all(stream.closed for stream in streams)


async def test_cancelled_reader_closes_all() -> None:
    streams = [Stream("a"), Stream("b")]
    seen = asyncio.Event()

    async def read() -> None:
        async with aclosing(merge([stream.steps() for stream in streams], of_prompts=True)) as merged:
            async for _ in merged:
                seen.set()

    reader = asyncio.create_task(read())
    async with asyncio.timeout(60):
        await seen.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    assert all(stream.closed for stream in streams)


async def test_error_in_the_only_stream() -> None:
    stream = Stream("a")
    stream.said.put_nowait(GenerationFailed("broken"))
    with pytest.raises(GenerationFailed, match="broken"):
        await all_of(stream)
    assert stream.closed


async def test_the_steps_of_sequences_keep_their_prompt() -> None:
    streams = [Stream("a", ends=True), Stream("b", "c", ends=True)]
    merged = [text(step) async for step in merge([stream.steps() for stream in streams])]
    assert sorted(merged) == [(0, "a"), (0, "b"), (0, "c")]

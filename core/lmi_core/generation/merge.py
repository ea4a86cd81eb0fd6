"""Merging of several streams of steps."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lmi_core.generation.output import GenerationStep

IndexedStep = tuple[int, GenerationStep]  # the index of its stream


async def merge_prompts(
    streams: Sequence[AsyncGenerator[GenerationStep, None]],
) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps of several prompts' streams as they arrive, each with the index of its prompt."""
    async with aclosing(merge(streams)) as merged:
        async for index, step in merged:
            if isinstance(step, GenerationStep):  # a plugin may yield anything; the reader of the steps reports it
                step.prompt_index = index
            yield step


async def merge_sequences(
    streams: Sequence[AsyncGenerator[GenerationStep, None]],
) -> AsyncGenerator[GenerationStep, None]:
    """Yield the steps of several streams for the sequences of one prompt as they arrive."""
    async with aclosing(merge(streams)) as merged:
        async for _, step in merged:
            yield step


async def merge(streams: Sequence[AsyncGenerator[GenerationStep, None]]) -> AsyncGenerator[IndexedStep, None]:
    """Yield the steps of all streams as they arrive.

    Closing the generator, or an error in one stream, closes every stream.
    """
    queue: asyncio.Queue[IndexedStep | BaseException | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_pump(index, stream, queue)) for index, stream in enumerate(streams)]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(
    index: int, stream: AsyncGenerator[GenerationStep, None], queue: asyncio.Queue[IndexedStep | BaseException | None]
) -> None:
    try:
        async with aclosing(stream):
            async for step in stream:
                queue.put_nowait((index, step))
    except BaseException as error:  # even if a stream cancels itself: otherwise, the consumer would wait forever
        queue.put_nowait(error)
    else:
        queue.put_nowait(None)

"""Several prompts' steps as one stream."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lmi_core.generation import GenerationStep

PromptStep = tuple[int, GenerationStep]  # the place of the prompt within its call, and what it gained


async def merge(streams: Sequence[AsyncGenerator[GenerationStep, None]]) -> AsyncGenerator[PromptStep, None]:
    """The steps of all streams as they come. Closing it, or an error in one of them, closes every stream."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as stream:
            async for step in stream:
                yield 0, step
        return
    queue: asyncio.Queue[PromptStep | BaseException | None] = asyncio.Queue()
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
    index: int, stream: AsyncGenerator[GenerationStep, None], queue: asyncio.Queue[PromptStep | BaseException | None]
) -> None:
    try:
        async with aclosing(stream):
            async for step in stream:
                queue.put_nowait((index, step))
    except BaseException as error:  # also a stream that cancels itself, or the consumer would wait for ever
        queue.put_nowait(error)
    else:
        queue.put_nowait(None)

"""Merging of several streams of steps."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from lmi_core.generation.output import GenerationStep

Steps = AsyncGenerator[GenerationStep, None]


def merge(streams: Sequence[Steps], *, of_prompts: bool = False) -> Steps:
    """Return the steps of all streams as they arrive; with `of_prompts`, a step's prompt index is its stream's index.

    Closing the generator, or an error in one stream, closes every stream.
    """
    return streams[0] if len(streams) == 1 else _merge(streams, of_prompts)


async def _merge(streams: Sequence[Steps], of_prompts: bool) -> Steps:
    queue: asyncio.Queue[GenerationStep | BaseException | None] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_pump(index if of_prompts else None, stream, queue)) for index, stream in enumerate(streams)
    ]
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
    prompt_index: int | None, stream: Steps, queue: asyncio.Queue[GenerationStep | BaseException | None]
) -> None:
    try:
        async with aclosing(stream):
            async for step in stream:
                # A plugin may yield anything; the reader of the steps reports it
                if prompt_index is not None and isinstance(step, GenerationStep):
                    step.prompt_index = prompt_index
                queue.put_nowait(step)
    except BaseException as error:  # even if a stream cancels itself: otherwise, the consumer would wait forever
        queue.put_nowait(error)
    else:
        queue.put_nowait(None)

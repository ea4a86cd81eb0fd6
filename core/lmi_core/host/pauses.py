"""Pauses in long loops on the event loop, so that requests can run."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def with_pauses(items: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every `at_once` items.

    `items` must not change during the iteration: pass a copy if it might.
    """
    for index, item in enumerate(items):
        if index and index % at_once == 0:
            await asyncio.sleep(0)
        yield item

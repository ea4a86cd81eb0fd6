"""Pauses in work on many things in the event loop, so that requests have their turn meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")


async def with_pauses(items: Iterable[T], at_once: int) -> AsyncIterator[T]:
    """Yield the items, letting others run after each `at_once` of them.

    `items` must not change while others run: give it a copy of what may.
    """
    for index, item in enumerate(items):
        if index and index % at_once == 0:
            await asyncio.sleep(0)
        yield item

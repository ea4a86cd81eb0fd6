"""A request's items on their way from the worker to their reader."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from lmi_core.errors import LmiError

T = TypeVar("T")


class ItemQueue(Generic[T]):
    """The unread items of one request, which is complete after `count` final items."""

    def __init__(self, count: int = 1, on_complete: Callable[[], None] = lambda: None) -> None:
        self._unfinished = count
        self._on_complete = on_complete
        self._items: asyncio.Queue[T | LmiError] = asyncio.Queue()

    @property
    def complete(self) -> bool:
        """Whether every item has arrived, read or not."""
        return not self._unfinished

    def put(self, item: T, *, final: bool = True) -> None:
        self._add(item, self._unfinished - final)

    def fail(self, error: LmiError) -> None:
        """Make `get` raise the error once all earlier items are read."""
        self._add(error, 0)

    async def get(self) -> T:
        """Return the next item, waiting for it; raise the error that the request has failed with."""
        item = await self._items.get()
        if isinstance(item, LmiError):
            raise item
        return item

    def _add(self, item: T | LmiError, unfinished: int) -> None:
        self._items.put_nowait(item)
        self._unfinished = unfinished
        if not unfinished:
            self._on_complete()

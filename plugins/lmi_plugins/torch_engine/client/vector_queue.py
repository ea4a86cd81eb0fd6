"""A request's vectors on their way from the worker to whoever reads them."""

import asyncio

from lmi_core.embedding_backend import Vector
from lmi_core.errors import LmiError


class VectorQueue:
    """The vectors of one request that nobody has read yet."""

    def __init__(self, count: int) -> None:
        self.missing = count  # not read yet, and perhaps not made
        self._items: asyncio.Queue[Vector | LmiError] = asyncio.Queue()

    def put(self, vector: Vector) -> None:
        self._items.put_nowait(vector)

    def fail(self, error: LmiError) -> None:
        """Have `get` raise the error once all earlier vectors are read."""
        self._items.put_nowait(error)

    async def get(self) -> Vector:
        """Return the next vector, waiting for it; raise the error that the request has failed with."""
        item = await self._items.get()
        if isinstance(item, LmiError):
            raise item
        self.missing -= 1
        return item

"""The use of a model: the number of its current calls, and when the last one ended."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Usage:
    """A count of a model's calls, from their admission to their end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.calls = 0
        self.last = clock()  # when a call last began or ended; initially, when the model was added
        self._clock = clock
        self._unused = asyncio.Event()
        self._unused.set()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count a call until it ends."""
        self.calls += 1
        self._unused.clear()
        self.last = self._clock()
        try:
            yield
        finally:
            self.calls -= 1
            self.last = self._clock()
            if self.calls == 0:
                self._unused.set()

    @property
    def unused_seconds(self) -> float:
        """The seconds since the end of the last call; 0 during calls."""
        return 0.0 if self.calls else self._clock() - self.last

    async def until_unused(self) -> None:
        """Wait until no call is left."""
        await self._unused.wait()

"""Dynamic (static) batching, for `option.rolling_batch=disable`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lmi_core.configuration.configuration import DEFAULT, Configuration
from lmi_core.configuration.properties import RequestProperties, ServerProperties


def choose_batching(
    server: ServerProperties, options: RequestProperties, configuration: Configuration
) -> RequestProperties:
    """Return the options with dynamic batching where `batch_size` alone asks for it, as LMI has it."""
    if server.batch_size == 1 or options.rolling_batch == "disable":
        return options
    if configuration.source("option.rolling_batch") != DEFAULT or options.async_mode:
        configuration.warnings.append(
            f"batch_size={server.batch_size} has no effect: with rolling batch requests join and leave one by one; "
            "option.rolling_batch=disable selects dynamic batching"
        )
        return options
    configuration.derive("option.rolling_batch", "disable", f"batch_size={server.batch_size}")
    return options.model_copy(update={"rolling_batch": "disable"})


class DynamicBatch:
    """A batch in which requests wait until there are `size`, or `max_delay` seconds have passed since the first came.

    They then run together, and the next batch starts when the last of them is done.
    """

    def __init__(self, size: int, max_delay: float) -> None:
        self._size = size
        self._max_delay = max_delay
        self._running = asyncio.Lock()
        self._gathering: _Batch | None = None

    @asynccontextmanager
    async def member(self) -> AsyncIterator[None]:
        """Hold a place in a batch, waiting for the batch to start."""
        batch = self._join()
        try:
            await batch.started.wait()
            yield
        finally:
            batch.leave()

    def _join(self) -> "_Batch":
        batch = self._gathering
        if batch is None or batch.done.is_set():  # done: every member left before it could start
            batch = self._gathering = _Batch()
            batch.task = asyncio.create_task(self._run(batch))
        batch.members += 1
        if batch.members == self._size:
            batch.full.set()
            self._gathering = None
        return batch

    async def _run(self, batch: "_Batch") -> None:
        try:
            async with asyncio.timeout(self._max_delay):
                await batch.full.wait()
        except TimeoutError:
            pass
        async with self._running:
            # those that came while the batch before this one ran were let in as well
            if self._gathering is batch:
                self._gathering = None
            batch.started.set()
            await batch.done.wait()


class _Batch:
    def __init__(self) -> None:
        self.members = 0
        self.full = asyncio.Event()
        self.started = asyncio.Event()
        self.done = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def leave(self) -> None:
        self.members -= 1
        if self.members == 0:
            self.done.set()

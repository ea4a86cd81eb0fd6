"""Dynamic (static) batching, for `option.rolling_batch=disable`."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Self, TypeVar

from lmi_core.configuration.configuration import DEFAULT, Configuration
from lmi_core.configuration.properties import RequestProperties, ServerProperties
from lmi_core.serving.limits.client_queue import ClientQueue
from lmi_core.serving.running import RunningCall

T = TypeVar("T")


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

    They then run together, and the next batch starts when the last of them is done. Where more wait than fit into it,
    clients take turns.
    """

    def __init__(self, size: int, max_delay: float) -> None:
        self.size = size
        self.max_delay = max_delay
        self.waiting = 0  # the sequences of the requests whose batch has not started
        self._waiting: ClientQueue[_Member] = ClientQueue()
        self._num_running = 0
        self._start: asyncio.TimerHandle | None = None

    @classmethod
    def chosen(cls, server: ServerProperties, options: RequestProperties) -> Self | None:
        """Return the batch of a model that has dynamic batching, None for another one."""
        return cls(server.batch_size, server.max_batch_delay / 1000) if options.dynamic_batching else None

    async def run(
        self, call: RunningCall, begin: Callable[[], AsyncGenerator[T, None]], client: str = ""
    ) -> AsyncGenerator[T, None]:
        """Yield what `begin` yields, which is called when the batch starts."""
        call.wait_for_turn()
        async with self.member(client, call.num_sequences):
            call.begin()
            async with aclosing(begin()) as items:
                async for item in items:
                    yield item

    def change(self, server: ServerProperties) -> None:
        """Have batches of another size, or wait for another time."""
        self.size, self.max_delay = server.batch_size, server.max_batch_delay / 1000
        self._start_when_due()

    @asynccontextmanager
    async def member(self, client: str = "", num_sequences: int = 1) -> AsyncIterator[None]:
        """Hold a place in a batch, waiting for the batch to start."""
        member = _Member(num_sequences)
        self._waiting.add(client, member)
        self.waiting += num_sequences
        self._start_when_due()
        try:
            await member.started.wait()
            yield
        finally:
            if member.started.is_set():
                self._num_running -= 1
            else:
                self._waiting.discard(client, member)
                self.waiting -= num_sequences
            self._start_when_due()

    def _start_when_due(self) -> None:
        """Start the next batch, or set the time at which it starts, unless one runs."""
        if self._start is not None:
            self._start.cancel()
            self._start = None
        if self._num_running or not self._waiting:
            return
        if len(self._waiting) >= self.size:
            self._start_now()
            return
        due = min(member.arrived for member in self._waiting.of_each_client()) + self.max_delay
        self._start = asyncio.get_running_loop().call_at(due, self._start_now)  # in a moment, where that has passed

    def _start_now(self) -> None:
        while self._waiting and self._num_running < self.size:
            self._num_running += 1
            member = self._waiting.pop()
            self.waiting -= member.num_sequences
            member.started.set()


class _Member:
    def __init__(self, num_sequences: int) -> None:
        self.num_sequences = num_sequences
        self.arrived = asyncio.get_running_loop().time()
        self.started = asyncio.Event()

"""The time that a call spends in an engine, which its limits for tokens count."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class EngineTime:
    """When a call's requests entered the engine that they are in."""

    def __init__(self) -> None:
        self.since = 0.0  # on the event loop's clock; infinite while every request waits for an engine
        self._inside = 0

    def wait(self) -> None:
        """Stop the clock until a request is in an engine, unless one is."""
        if not self._inside:
            self.since = math.inf

    @contextmanager
    def in_engine(self) -> Iterator[None]:
        """Hold a request's time in an engine."""
        self.begin()
        try:
            yield
        finally:
            self.pause()

    def begin(self) -> None:
        """Count a request's time from now on."""
        self._inside += 1
        if self._inside == 1:
            self.since = asyncio.get_running_loop().time()

    def pause(self) -> None:
        """Count a request's time no longer."""
        self._inside -= 1
        self.wait()


# Of the call that the current task works on
current_engine_time: ContextVar[EngineTime] = ContextVar("current_engine_time")

"""The time that a call spends in an engine, to which its token time limits apply."""

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class EngineTime:
    """The time when a call's requests entered their current engine."""

    def __init__(self) -> None:
        self.since = 0.0  # on the event loop's clock; infinite while every request waits for an engine
        self._inside = 0

    def wait(self) -> None:
        """Stop the clock until a request is in an engine, unless one already is."""
        if not self._inside:
            self.since = math.inf

    @contextmanager
    def in_engine(self) -> Iterator[None]:
        """Track one request's time in an engine."""
        self.begin()
        try:
            yield
        finally:
            self.pause()

    def begin(self) -> None:
        """Start counting a request's time."""
        self._inside += 1
        if self._inside == 1:
            self.since = asyncio.get_running_loop().time()

    def pause(self) -> None:
        """Stop counting a request's time."""
        self._inside -= 1
        self.wait()


# Of the call that the current task works on
current_engine_time: ContextVar[EngineTime] = ContextVar("current_engine_time")

"""Threads for work that would block the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lmi_core.deadlines.event_loop import NeedsTimeError, without_delay

T = TypeVar("T")

LONG_TEXT = 20_000  # characters or bytes; to parse, check or tokenize them takes milliseconds


class BesideLoop:
    """A thread that runs one piece of work at a time, so that it uses at most one core.

    The interpreter still lets the event loop run every few milliseconds.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of the work. Cancelling drops work that has not started."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run_if(self, long: bool, work: Callable[[], T]) -> T:
        """Run long work in the thread, and other work immediately."""
        if long:
            return await self.run(work)
        try:
            return without_delay(work)
        except NeedsTimeError:
            return await LENGTHY.run(work)


# Two, so that requests that arrive do not wait for huge answers.
READING = BesideLoop("lmi-reading")
WRITING = BesideLoop("lmi-writing")
LENGTHY = BesideLoop("lmi-lengthy")  # for what has given way, which waits for its like alone

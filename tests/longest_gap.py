"""How long an event loop is kept from its next turn, by its callbacks or by whoever holds the interpreter's lock."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

INTERVAL = 0.001  # seconds
SCHEDULING = Path("/proc/thread-self/schedstat")


class LongestGap:
    """The longest time between two turns so far, without that in which the machine had no processor for them."""

    seconds = 0.0

    def __init__(self) -> None:
        self._last: float | None = None

    def turn(self) -> None:
        now = time.perf_counter() - _without_processor()
        if self._last is not None:
            self.seconds = max(self.seconds, now - self._last)
        self._last = now


def _without_processor() -> float:
    try:
        return int(SCHEDULING.read_text().split()[1]) / 1e9
    except OSError:  # the system does not tell
        return 0.0


@asynccontextmanager
async def event_loop_watched() -> AsyncIterator[LongestGap]:
    """Measure the running event loop meanwhile."""
    gap = LongestGap()

    async def watch() -> None:
        while True:
            gap.turn()
            await asyncio.sleep(INTERVAL)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)  # its first turn
    try:
        yield gap
        gap.turn()  # as what was done last may have held it
    finally:
        watching.cancel()

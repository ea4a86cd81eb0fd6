"""An event loop's clock that tests set forward: limits of minutes are then over at once, and never by chance."""

import asyncio
from collections.abc import Callable

import pytest

TURNS = 100  # longer than a request runs between two waits for time or a socket


class LoopClock:
    """The clock of a loop, which must be set up before others keep a reference to the loop's own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._own, self._ahead = loop.time, 0.0
        loop.time = self.time  # type: ignore[method-assign]

    def time(self) -> float:
        return self._own() + self._ahead

    async def pass_time(self, seconds: float) -> None:
        """Let the timers of the next seconds be due, and what follows from them happen."""
        self._ahead += seconds
        await settle()


@pytest.fixture
async def clock() -> LoopClock:
    """The clock of the test's event loop; name it before fixtures that start servers."""
    return LoopClock(asyncio.get_running_loop())


async def settle() -> None:
    """Let everything go on that waits for nothing but its turn."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds, and what follows from it has happened."""
    while not condition():
        await asyncio.sleep(0.001)
    await settle()

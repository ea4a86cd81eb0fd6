"""Under load, tokens of a stream gather before it is woken for them."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

SECONDS_PER_STREAM = 0.0006
TICK = 0.005  # seconds


class Wait(NamedTuple):
    due: float
    ended: Callable[[], bool]
    over: asyncio.Future[None]


class Gathering:
    """Of all streams of an engine: the more there are, the longer each waits for its next tokens.

    Most of what a token costs a server is to wake its stream and to write to its socket, and costs no more for several
    tokens at once. Few streams, and every stream's first and last tokens, do not wait.
    """

    def __init__(self, longest: float) -> None:
        """`longest`: seconds; 0 is never."""
        self._longest = longest
        self._streams = 0
        self._waits: list[Wait] = []

    @contextmanager
    def stream(self) -> Iterator[None]:
        """One stream more, for as long as it runs."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    async def wait(self, ended: Callable[[], bool]) -> None:
        """Until it is time to read a stream again, or soon after it `ended`."""
        delay = min(self._longest, self._streams * SECONDS_PER_STREAM)
        if delay < TICK:
            return
        loop = asyncio.get_running_loop()
        if not self._waits:
            loop.call_later(TICK, self._look, loop)
        over: asyncio.Future[None] = loop.create_future()
        self._waits.append(Wait(loop.time() + delay, ended, over))
        await over

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        waits, self._waits = self._waits, []
        for wait in waits:
            if wait.over.done():  # cancelled
                continue
            if wait.due <= now or wait.ended():
                wait.over.set_result(None)
            else:
                self._waits.append(wait)
        if self._waits:
            loop.call_later(TICK, self._look, loop)

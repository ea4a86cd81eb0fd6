"""Under load, tokens of a stream gather before it is woken for them."""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS_PER_STREAM = 0.0006
TICK = 0.005  # seconds


class Gathering:
    """Of all streams of an engine: the more there are, the longer each waits for its next tokens.

    Most of what a token costs a server is to wake its stream and to write to its socket, and costs no more for several
    tokens at once. Few streams, and every stream's first and last tokens, do not wait.
    """

    def __init__(self, longest: float) -> None:
        """`longest`: seconds; 0 is never."""
        self._longest = longest
        self._streams = 0
        self._waiting: deque[GatheringStream] = deque()  # about in the order in which they are due

    @contextmanager
    def stream(self) -> "Iterator[GatheringStream]":
        """One stream more, for as long as it runs."""
        self._streams += 1
        try:
            yield GatheringStream(self)
        finally:
            self._streams -= 1

    @property
    def delay(self) -> float:
        """Seconds. None of less than a tick: looking for who is due costs something too."""
        delay = min(self._longest, self._streams * SECONDS_PER_STREAM)
        return delay if delay >= TICK else 0.0

    def add(self, waiting: "GatheringStream") -> None:
        if not self._waiting:
            self._look_later()
        self._waiting.append(waiting)

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(TICK, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting and self._waiting[0].due <= now:
            self._waiting.popleft().wake()
        if self._waiting:
            self._look_later()


class GatheringStream:
    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._ended = False
        self.due = 0.0  # the event loop's time
        self._wait: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Until it is time to read again, or the stream's end is there."""
        delay = self._gathering.delay
        if self._ended or not delay:
            return
        loop = asyncio.get_running_loop()
        self.due = loop.time() + delay
        self._wait = loop.create_future()
        self._gathering.add(self)
        await self._wait

    def end(self) -> None:
        """The last tokens are there, to be read without further waits."""
        self._ended = True
        self.wake()

    def wake(self) -> None:
        if self._wait is not None and not self._wait.done():
            self._wait.set_result(None)

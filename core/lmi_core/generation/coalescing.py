"""Output coalescing: under load, a stream wakes once for several tokens."""

import asyncio
from collections import deque

MAX_UNDELAYED_STREAMS = 8  # with at most this many streams, each token is sent by itself
SECONDS_PER_STREAM = 0.001  # the delay per running stream: more streams save more
TICK = 0.005  # seconds


class OutputCoalescing:
    """The stream interval of an engine: the more streams run, the longer each waits for its next tokens.

    Most of the server's cost per token is waking the stream and writing to the socket, which costs the same for several
    tokens together. If there are few streams, they do not wait; nor do the first and last tokens of a stream.
    """

    def __init__(self, max_delay: float) -> None:
        """Delay a stream by at most `max_delay` seconds; 0 disables it."""
        self._max_delay = max_delay
        self.delay = 0.0  # seconds; 0 if below one tick, because checking for due streams has a cost too
        self._streams = 0
        self._waiting: deque[CoalescedStream] = deque()  # roughly by due time

    def begin(self) -> "CoalescedStream":
        """Count one more stream, until its `close`."""
        self.count(1)
        return CoalescedStream(self)

    def count(self, more: int) -> None:
        self._streams += more
        delay = min(self._max_delay, self._streams * SECONDS_PER_STREAM)
        self.delay = delay if delay >= TICK and self._streams > MAX_UNDELAYED_STREAMS else 0.0

    def add(self, waiting: "CoalescedStream") -> None:
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


class CoalescedStream:
    """A stream whose reader waits for the next interval."""

    def __init__(self, coalescing: OutputCoalescing) -> None:
        self._coalescing = coalescing
        self._ended = False
        self.due = 0.0  # on the event loop's clock
        self._wait: asyncio.Future[None] | None = None

    async def wait(self) -> None:
        """Wait until the next read is due, or the stream has ended."""
        delay = self._coalescing.delay
        if self._ended or not delay:
            return
        loop = asyncio.get_running_loop()
        self.due = loop.time() + delay
        self._wait = loop.create_future()
        self._coalescing.add(self)
        await self._wait

    def close(self) -> None:
        self._coalescing.count(-1)

    def end(self) -> None:
        """Mark the last tokens as arrived, so that no wait delays them."""
        self._ended = True
        self.wake()

    def wake(self) -> None:
        if self._wait is not None and not self._wait.done():
            self._wait.set_result(None)

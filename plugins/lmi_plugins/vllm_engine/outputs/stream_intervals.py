"""The choice of vLLM's `stream_interval`: the number of tokens per output of a request while many requests run.

Most of the server's cost per token is creating an output, waking its stream and writing to its socket; several tokens
together cost hardly more. vLLM sends a request's first and last tokens immediately, and counts those between. The
interval is part of the request, so the choice is based on the recent time per token.
"""

import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lmi_core.generation.coalescing import MAX_UNDELAYED_STREAMS, SECONDS_PER_STREAM

PERIOD = 1.0  # seconds over which a mean is taken
MEMORY = 60.0  # seconds for which a mean is used


@dataclass(slots=True)
class Period:
    """The streams of one period, and their waits for tokens."""

    start: float
    end: float  # of the latest token so far
    max_streams: int = 0
    num_tokens: int = 0
    seconds: float = 0.0

    @property
    def seconds_per_token(self) -> float:
        return self.seconds / self.num_tokens


class StreamIntervals:
    """The choice of the stream interval of each request to an engine."""

    def __init__(self, max_delay: float, now: Callable[[], float] = time.monotonic) -> None:
        """`max_delay`: seconds that a token may wait for others of its request; 0 disables it."""
        self._max_delay = max_delay
        self._now = now
        self._num_streams = 0
        self._periods: deque[Period] = deque()  # periods with tokens, oldest first

    @contextmanager
    def stream(self) -> "Iterator[StreamClock]":
        """Count a stream, and time its tokens, in the context."""
        self._num_streams += 1
        try:
            yield StreamClock(self, self._now)
        finally:
            self._num_streams -= 1

    def choose(self) -> int:
        """Return the interval for a new request, which `stream` has already counted.

        A token waits for at most `interval - 1` others: for the maximum delay if each takes the median time of the last
        minute's busy seconds. Until the time per token is known, no token waits.
        """
        now = self._now()
        self._forget(now)
        if not self._periods or self._recent_streams(now) <= MAX_UNDELAYED_STREAMS:
            return 1
        max_streams = max(period.max_streams for period in self._periods)
        busy = [period.seconds_per_token for period in self._periods if 2 * period.max_streams >= max_streams]
        expected = statistics.median(busy)
        if self._num_streams > max_streams:  # steps then take longer, but at most proportionally
            expected *= self._num_streams / max_streams
        delay = min(self._max_delay, max(self._num_streams, max_streams) * SECONDS_PER_STREAM)
        return 1 + int(delay / expected)

    def record(self, now: float, seconds: float, num_tokens: int) -> None:
        """Record the seconds that a stream waited for its next tokens."""
        if not self._periods or now - self._periods[-1].start >= PERIOD:
            self._periods.append(Period(now, now))
            self._forget(now)
        period = self._periods[-1]
        period.end = now
        period.max_streams = max(period.max_streams, self._num_streams)
        period.num_tokens += num_tokens
        period.seconds += seconds

    def _recent_streams(self, now: float) -> int:
        """Return the recent maximum number of concurrent streams, because requests often start and end together."""
        recent = (period.max_streams for period in self._periods if now - period.end < PERIOD)
        return max((self._num_streams, *recent))

    def _forget(self, now: float) -> None:
        while self._periods and now - self._periods[0].start > MEMORY:
            self._periods.popleft()


class StreamClock:
    """A timer of one stream's tokens, from the first on."""

    def __init__(self, intervals: StreamIntervals, now: Callable[[], float]) -> None:
        self._intervals = intervals
        self._now = now
        self._last_read: float | None = None

    def read(self, num_tokens: int) -> None:
        """Record that an output with that many tokens was read now."""
        now = self._now()
        if self._last_read is not None and num_tokens:
            self._intervals.record(now, now - self._last_read, num_tokens)
        self._last_read = now

"""How long it takes until a full queue has room, judged by how fast it has moved."""

import time
from collections import deque

MOST = 64  # departures that are looked at, so that the rate is that of now
FEWEST = 4  # before which nothing is known
MAX_ADVICE = 60.0  # seconds: clients that are told a longer time do not wait


class Departures:
    """The latest departures from a queue while others waited in it, when it moves as fast as the engine does."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=MOST)
        self._promised = 0  # departures for which clients were told to come back

    def add(self, count: int, *, others_wait: bool) -> None:
        """Note that this many places became free."""
        self._promised = max(0, self._promised - count)
        if not others_wait:
            self._times.clear()  # the pauses between requests say nothing about the engine
            return
        now = time.monotonic()
        for _ in range(min(count, MOST)):
            self._times.append(now)

    def seconds_for(self, count: int) -> float | None:
        """Return how long that many further departures take; None where that is unknown."""
        if len(self._times) < FEWEST:
            return None
        elapsed = time.monotonic() - self._times[0]
        return elapsed * count / (len(self._times) - 1)

    def advice(self, count: int = 0) -> float | None:
        """Return when to come back for a place after that many departures; each who asks is told a later time."""
        self._promised += 1
        seconds = self.seconds_for(count + self._promised)
        return None if seconds is None else min(seconds, MAX_ADVICE)

"""Signs of life of a worker that computes one long step."""

import time
from collections.abc import Callable

SECONDS = 1.0  # minimum between two signs of life


class Pulse:
    """A sender of signs of life, called after each layer."""

    def __init__(self, send: Callable[[], None]) -> None:
        self._send = send
        self._due = 0.0

    def beat(self) -> None:
        """Send a sign of life, unless the last one was just now."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + SECONDS
            self._send()

"""Restarts of dead processes: a few in a row, after increasing delays."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lmi_core.errors import ConfigurationError

logger = logging.getLogger(__name__)

FIRST_DELAY = 0.5  # seconds, doubled with each consecutive restart
MAX_DELAY = 30.0

T = TypeVar("T")


class Restarts:
    """The allowed consecutive restarts of an engine, or of a model function's worker."""

    def __init__(self, threshold: int, what: str = "the engine") -> None:
        """Allow `threshold` consecutive restarts."""
        self.given_up = asyncio.Event()
        self.count = 0  # number of restarts
        self._left = self._threshold = threshold
        self._what = what

    @property
    def reason(self) -> str:
        """The reason for giving up, for people."""
        return (
            f"{self._what} died and is not restarted again, after {self._threshold} consecutive restarts "
            "(retry_threshold)"
        )

    def reset_count(self) -> None:
        """Reset the count, because the restarted process works."""
        self._left = self._threshold

    async def attempt(self, start: Callable[[], Awaitable[T]]) -> T | None:
        """Call `start` until it succeeds and return its result, or None if all allowed restarts fail."""
        delay = FIRST_DELAY
        while self._left > 0:
            self._left -= 1
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_DELAY)
            try:
                started = await start()
            except ConfigurationError as error:
                logger.error("%s could not be restarted: %s", self._what, error)
            except Exception:  # for example, no descriptors or no disk space; this may pass
                logger.exception("%s could not be restarted", self._what)
            else:
                self.count += 1
                logger.warning("%s was restarted", self._what)
                return started
        return None

    def give_up(self) -> None:
        """Log the reason, and set `given_up`."""
        logger.critical(self.reason)
        self.given_up.set()

"""How what died is started again: a few times in a row, after longer and longer waits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lmi_core.errors import ConfigurationError

logger = logging.getLogger(__name__)

FIRST_DELAY = 0.5  # seconds; doubled with each restart in a row
LONGEST_DELAY = 30.0

T = TypeVar("T")


class Restarts:
    """Of one engine. `worked` begins a new row."""

    def __init__(self, threshold: int) -> None:
        self.given_up = asyncio.Event()
        self._left = self._threshold = threshold

    @property
    def reason(self) -> str:
        """Why the engine was given up."""
        return f"the engine died, and is given up after {self._threshold} restarts in a row (retry_threshold)"

    def worked(self) -> None:
        self._left = self._threshold

    async def attempt(self, start: Callable[[], Awaitable[T]]) -> T | None:
        """What `start` returned, or None once as many restarts in a row as are allowed came to nothing."""
        delay = FIRST_DELAY
        while self._left > 0:
            self._left -= 1
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_DELAY)
            try:
                started = await start()
            except ConfigurationError as error:
                logger.error("the engine could not be restarted: %s", error)
            else:
                logger.warning("the engine was restarted")
                return started
        logger.critical(self.reason)
        self.given_up.set()
        return None

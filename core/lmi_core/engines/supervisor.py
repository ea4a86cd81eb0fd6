"""Supervision of an engine: it is started, watched, and started again when it dies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from lmi_core.engines.restarts import Restarts
from lmi_core.errors import BackendUnhealthy

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Supervisor(Generic[T]):
    """A keeper of one running engine, of a kind that can be created, watched until it dies, and ended."""

    def __init__(
        self,
        create: Callable[[], Awaitable[T]],
        watch: Callable[[T], Awaitable[str]],
        end: Callable[[T], Awaitable[None]],
        retry_threshold: int,
    ) -> None:
        """`create` raises ConfigurationError; `watch` returns what has died; `end` frees what is left of an engine."""
        self.restarts = Restarts(retry_threshold)
        self.why_unhealthy = "the engine is starting"  # while none runs
        self._create = create
        self._watch = watch
        self._end = end
        self._running: T | None = None
        self._supervision: asyncio.Task[None] | None = None

    @property
    def running(self) -> T:
        """The engine while it takes requests. Raise BackendUnhealthy while there is none."""
        if self._running is None:
            raise BackendUnhealthy(self.why_unhealthy)
        return self._running

    async def start(self) -> None:
        """Create the engine, and watch over it from then on. Raise ConfigurationError where it cannot be created."""
        self._running = await self._create()
        self._supervision = asyncio.create_task(self._supervise(self._running))
        await asyncio.sleep(0)  # from here on the task ends the engine, also when it is cancelled at once

    async def stop(self) -> None:
        """End the engine; safe to call at any time, also twice."""
        if self._supervision is not None:
            self._supervision.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervision

    async def _supervise(self, engine: T) -> None:
        while True:
            try:
                death = await self._death(engine)
                self.why_unhealthy = f"{death} and is being restarted"
            finally:
                self._running = None
                await self._ended(engine)
            restarted = await self.restarts.attempt(self._create)
            if restarted is None:
                self.why_unhealthy = self.restarts.reason
                self.restarts.give_up()
                return
            self._running = engine = restarted

    async def _death(self, engine: T) -> str:
        """Return what has died, once it has."""
        try:
            return await self._watch(engine)
        except Exception:
            logger.exception("the engine can no longer be watched")
            return "the engine could no longer be watched"

    async def _ended(self, engine: T) -> None:
        try:
            await self._end(engine)
        except Exception:  # what is left of it must not keep a new one from being started
            logger.exception("what is left of the engine could not be ended")

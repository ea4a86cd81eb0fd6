"""Supervision of an engine: start, monitoring, and a few restarts in a row after its death, with growing delays."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

from lmi_core.errors import BackendUnhealthy, ConfigurationError

logger = logging.getLogger(__name__)

LOADING_TIMEOUT = 1800  # seconds; the default of option.model_loading_timeout
MIN_RESTART_TIME = 120.0  # minimum of seconds allowed for a restart
RESTART_FACTOR = 5  # times the first start: the machine may be busier, but the files are cached
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
        """Call `start` until it succeeds and return its result, or give up and return None if all restarts fail."""
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
        logger.critical(self.reason)
        self.given_up.set()
        return None


class Supervisor(Generic[T]):
    """A supervisor of one engine that can be created, watched until it dies, and ended."""

    def __init__(
        self,
        create: Callable[[], Awaitable[T]],
        watch: Callable[[T], Awaitable[str]],
        end: Callable[[T], Awaitable[None]],
        retry_threshold: int,
        loading_timeout: float = LOADING_TIMEOUT,
        what: str = "the engine",
    ) -> None:
        """`create` raises ConfigurationError; `watch` returns the reason of a death; `end` frees an engine's resources.

        A restart fails if it takes longer than `loading_timeout` seconds, or several times as long as the first start.
        `what` names the engine in the log.
        """
        self.restarts = Restarts(retry_threshold, what)
        self.why_unhealthy = "the engine is starting"  # for requests while no engine runs
        self._create = create
        self._watch = watch
        self._end = end
        self.restart_timeout = loading_timeout  # seconds
        self._start_time = 0.0  # seconds taken by the first start
        self._expected = 0.0  # when the next engine may accept requests, on the loop's clock
        self._running: T | None = None
        self._settled = asyncio.Event()  # set when an engine runs, or when none ever will
        self._supervision: asyncio.Task[None] | None = None
        self._deadline: asyncio.Timeout | None = None  # for the current restart

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def is_late(self) -> bool:
        """Whether a restart has taken too long, and is being cancelled."""
        return self._deadline is not None and self._deadline.expired()

    @property
    def running(self) -> T:
        """The running engine. Raise BackendUnhealthy while there is no engine."""
        if self._running is None:
            raise self.unhealthy()
        return self._running

    def unhealthy(self) -> BackendUnhealthy:
        """Return the error for requests while no engine accepts any, with the expected wait if known."""
        seconds = max(1.0, self._expected - asyncio.get_running_loop().time())
        return BackendUnhealthy(self.why_unhealthy, None if self.restarts.given_up.is_set() else seconds)

    async def available(self) -> None:
        """Wait until an engine accepts requests. Raise BackendUnhealthy if none is restarted any longer."""
        await self._settled.wait()
        _ = self.running

    async def start(self) -> None:
        """Create and supervise the engine. Raise ConfigurationError if it cannot be created."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        self._running = await self._create()
        self._start_time = clock() - begun
        self.restart_timeout = min(self.restart_timeout, max(RESTART_FACTOR * self._start_time, MIN_RESTART_TIME))
        self._settled.set()
        self._supervision = asyncio.create_task(self._supervise(self._running))
        await asyncio.sleep(0)  # from here on, the task ends the engine even if it is cancelled immediately

    async def stop(self) -> None:
        """End the engine; safe to call repeatedly, at any time."""
        if self._supervision is not None:
            self._supervision.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervision
            self.why_unhealthy = "the engine was stopped"
            self._settled.set()

    async def _supervise(self, engine: T) -> None:
        while True:
            try:
                death = await self._death(engine)
                self.why_unhealthy = f"{death} and is being restarted"
            finally:
                self._running = None
                self._settled.clear()
                self._expected = asyncio.get_running_loop().time() + FIRST_DELAY + self._start_time
                try:
                    await self._end(engine)
                except Exception:  # its remains must not prevent a new one from starting
                    logger.exception("the remains of the engine could not be stopped")
            restarted = await self.restarts.attempt(self._recreate)
            if restarted is None:
                self.why_unhealthy = self.restarts.reason
                self._settled.set()
                return
            self._running = engine = restarted
            self._settled.set()

    async def _recreate(self) -> T:
        """Create an engine within a bounded time, because requests wait for it. Raise ConfigurationError otherwise."""
        try:
            async with asyncio.timeout(self.restart_timeout) as self._deadline:
                return await self._create()
        except TimeoutError:
            if not self.is_late:
                raise
            raise ConfigurationError(f"it did not start within {self.restart_timeout:g} seconds") from None

    async def _death(self, engine: T) -> str:
        """Wait for a death, and return its reason."""
        try:
            return await self._watch(engine)
        except Exception:
            logger.exception("the engine can no longer be watched")
            return "the engine could no longer be watched"

"""An engine's worker process, from the server's side: a new one is started when it dies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from lmi_core.engines.restarts import Restarts
from lmi_core.engines.worker import Worker, WorkerDied
from lmi_core.errors import BackendUnhealthy, ConfigurationError

logger = logging.getLogger(__name__)

WORKER_ENVIRONMENT = {
    # OpenMP's threads otherwise wait in a loop: with as many threads as cores that costs more than all the rest as soon
    # as anything else, such as the server itself, wants a core. GNU's may wait so for some microseconds, as long as it
    # is mostly until the next operation: that is a third faster than to sleep and be woken.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "1000",
    # glibc otherwise gives logits and activations back to the system at each step, and takes them anew page by page.
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # drawn for a terminal, and this goes to a log
}


class EngineWorker:
    """A supervised worker, for a client that greets each new one, and hears what it sends and why it died.

    `greet` may raise ConfigurationError: what it asked the worker to load is wrong.
    """

    def __init__(
        self,
        target: str,
        greet: Callable[[Worker], Awaitable[None]],
        deliver: Callable[[bytes], None],
        lose: Callable[[str], None],
        retry_threshold: int,
    ) -> None:
        self.restarts = Restarts(retry_threshold)
        self.why_unhealthy = "the engine is starting"  # while it is
        self._target = target
        self._greet = greet
        self._deliver = deliver
        self._lose = lose
        self._worker: Worker | None = None  # set while it takes requests
        self._started: Worker | None = None  # the last one, whether it lives or not
        self._supervisor: asyncio.Task[None] | None = None

    @property
    def process_id(self) -> int | None:
        return self._worker.process_id if self._worker else None

    async def start(self) -> None:
        """Start the worker and watch over it; raise ConfigurationError if it cannot begin."""
        worker = await self._start_worker()
        self._supervisor = asyncio.create_task(self._supervise(worker))

    async def stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor
        if self._started is not None:
            await self._started.stop()
        self._lose("the engine was stopped")

    def check_health(self) -> None:
        """Raise BackendUnhealthy while no worker takes messages."""
        if self._worker is None:
            raise BackendUnhealthy(self.why_unhealthy)

    def send(self, message: bytes) -> None:
        """Send a message to the worker; raise BackendUnhealthy while there is none."""
        self.check_health()
        assert self._worker is not None
        self._worker.send(message)

    async def _start_worker(self) -> Worker:
        worker = Worker(self._target, WORKER_ENVIRONMENT)
        try:
            await worker.start()
            await self._greet(worker)
        except WorkerDied as death:
            await worker.stop()
            raise ConfigurationError(f"the engine could not be started: {death}; its log above says why") from None
        except BaseException:
            await worker.stop()
            raise
        self._worker = self._started = worker
        return worker

    async def _supervise(self, worker: Worker) -> None:
        while True:
            try:
                while True:
                    self._deliver(await worker.receive())
            except WorkerDied as death:
                self._worker = None
                logger.error("%s; the requests in it fail", death)
                self.why_unhealthy = f"{death} and is being restarted"
                self._lose(str(death))
            finally:
                self._worker = None
                await worker.stop()
            restarted = await self.restarts.attempt(self._start_worker)
            if restarted is None:
                self.why_unhealthy = self.restarts.reason
                self.restarts.give_up()
                return
            worker = restarted

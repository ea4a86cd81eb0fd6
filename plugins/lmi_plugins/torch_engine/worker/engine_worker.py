"""An engine's worker process, from the server's side: a new one is started when it dies."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from lmi_core.engines.restarts import Restarts
from lmi_core.engines.supervisor import Supervisor
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
        self._target = target
        self._greet = greet
        self._deliver = deliver
        self._lose = lose
        self._supervisor = Supervisor(self._create, self._watch, Worker.stop, retry_threshold)

    @property
    def restarts(self) -> Restarts:
        return self._supervisor.restarts

    @property
    def why_unhealthy(self) -> str:
        """The reason while no worker takes messages."""
        return self._supervisor.why_unhealthy

    @property
    def process_id(self) -> int | None:
        """The worker's process id; None while there is none."""
        with suppress(BackendUnhealthy):
            return self._supervisor.running.process_id
        return None

    async def start(self) -> None:
        """Start the worker and watch over it; raise ConfigurationError if it cannot begin."""
        await self._supervisor.start()

    async def stop(self) -> None:
        await self._supervisor.stop()
        self._lose("the engine was stopped")

    def check_health(self) -> None:
        """Raise BackendUnhealthy while no worker takes messages."""
        _ = self._supervisor.running

    def send(self, message: bytes) -> None:
        """Send a message to the worker; raise BackendUnhealthy while there is none."""
        self._supervisor.running.send(message)

    async def _create(self) -> Worker:
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
        return worker

    async def _watch(self, worker: Worker) -> str:
        """Deliver what the worker sends until it dies, and return how it did."""
        try:
            while True:
                self._deliver(await worker.receive())
        except WorkerDied as death:
            logger.error("%s; the requests in it fail", death)
            self._lose(str(death))
            return str(death)

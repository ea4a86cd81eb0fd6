"""An engine's worker process, from the server's side: a new one is started when it dies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from lmi_core.errors import BackendUnhealthy
from lmi_core.plugins.early_workers import take_early
from lmi_core.workers.heartbeat import Heartbeat
from lmi_core.workers.restarts import Restarts
from lmi_core.workers.supervisor import Supervisor
from lmi_core.workers.worker import Worker, WorkerDied
from lmi_plugins.torch_engine.client.early import ENVIRONMENT

logger = logging.getLogger(__name__)


class EngineWorker:
    """A supervised worker, for a client that greets each new one, and hears what it sends and why it died.

    A worker that is silent for `heartbeat_timeout` seconds, although it got `ping`, is killed; 0: never. So is one that
    replaces another and is not there in time, for which see Supervisor.
    `greet` may raise ConfigurationError: what it asked the worker to load is wrong.
    """

    def __init__(
        self,
        target: str,
        greet: Callable[[Worker], Awaitable[None]],
        deliver: Callable[[bytes], None],
        lose: Callable[[str], None],
        retry_threshold: int,
        ping: bytes,
        heartbeat_timeout: float,
        loading_timeout: float,
    ) -> None:
        self._target = target
        self._greet = greet
        self._deliver = deliver
        self._lose = lose
        self._ping = ping
        self._heartbeat = Heartbeat(heartbeat_timeout)
        self._supervisor = Supervisor(self._create, self._watch, Worker.stop, retry_threshold, loading_timeout)

    @property
    def restarts(self) -> Restarts:
        return self._supervisor.restarts

    @property
    def why_unhealthy(self) -> str:
        """The reason while no worker takes messages."""
        return self._supervisor.why_unhealthy

    @property
    def began(self) -> float:
        """When the worker began to take messages, by the loop's clock: now, while another is to replace it."""
        return self._supervisor.began

    @property
    def process_id(self) -> int | None:
        """The worker's process id; None while there is none."""
        with suppress(BackendUnhealthy):
            return self._supervisor.running.process_id
        return None

    async def available(self) -> None:
        """Wait until a worker takes messages. Raise BackendUnhealthy where none is started any more."""
        await self._supervisor.available()

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
        early = take_early(self._target)
        worker = early or Worker(self._target, ENVIRONMENT)
        try:
            if early is None:
                await worker.start()
            await self._greet(worker)
        except WorkerDied as death:
            await worker.stop()
            raise death.while_loading("the engine could not be started") from None
        except BaseException:
            await worker.stop()
            raise
        return worker

    async def _watch(self, worker: Worker) -> str:
        """Deliver what the worker sends until it dies, and return how it did."""
        frozen = asyncio.create_task(self._kill_when_frozen(worker))
        try:
            while True:
                message = await worker.receive()
                self._heartbeat.beat()
                self._deliver(message)
        except WorkerDied as death:
            why = f"the worker {frozen.result()} and was killed" if frozen.done() else str(death)
            logger.error("%s", why)
            self._lose(why)
            return why
        finally:
            frozen.cancel()

    async def _kill_when_frozen(self, worker: Worker) -> str:
        why = await self._heartbeat.frozen(lambda: worker.send(self._ping))
        worker.kill()
        return why

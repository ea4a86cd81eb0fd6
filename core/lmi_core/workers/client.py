"""A client of an engine in a worker: a dead worker is replaced, and its requests continue in the next one."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Generic, Protocol, TypeVar

import msgspec

from lmi_core.errors import BackendUnhealthy, LmiError
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.workers.conversation import Conversation, Endpoint, Place
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_core.workers.replica import Replica
from lmi_core.workers.resumption import EngineLost
from lmi_core.workers.supervisor import LOADING_TIMEOUT, Restarts, Supervisor

M = TypeVar("M")
K = TypeVar("K", bound=Hashable)
Q = TypeVar("Q", bound="Queue")


class Queue(Protocol):
    """The unread messages of the worker for one request."""

    @property
    def complete(self) -> bool:
        """Whether everything has arrived, read or not."""

    def fail(self, error: LmiError) -> None:
        """End the request with an error, after earlier items are read."""


class WorkerClient(Replica, Generic[M, K, Q]):
    """A supervised worker that sends messages M, and the queues Q of the requests K in it."""

    def __init__(
        self,
        endpoint: Callable[[], Endpoint],
        decode: Callable[[bytes], M],
        retry_threshold: int,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        loading_timeout: float = LOADING_TIMEOUT,
        what: str = "the engine",
    ) -> None:
        """Create a client without starting it; `endpoint` creates the endpoint of each worker.

        For the times, in seconds, see Conversation and Supervisor; `what` names the worker in messages.
        """
        super().__init__()
        self.report: Report = unheard  # receives the worker's progress in loading its model
        self._endpoint = endpoint
        self._decode = decode
        self._heartbeat_timeout = heartbeat_timeout
        self._loading_timeout = loading_timeout
        self._what = what
        ending = Conversation[M].stop
        self._supervisor = Supervisor(self._create, self._watch, ending, retry_threshold, loading_timeout, what)
        self._requests: dict[K, Q] = {}

    @property
    def is_available(self) -> bool:
        return self._supervisor.is_running

    @property
    def process_id(self) -> int | None:
        """The worker's process id on this machine; None while there is none."""
        return self._supervisor.running.endpoint.process_id if self._supervisor.is_running else None

    @property
    def place(self) -> Place | None:
        return self._supervisor.running.endpoint.place if self._supervisor.is_running else None

    @property
    def process_ids(self) -> Collection[int]:
        return () if self.process_id is None else (self.process_id,)

    @property
    def restarts(self) -> Restarts:
        return self._supervisor.restarts

    async def available(self) -> None:
        await self._supervisor.available()

    async def start(self) -> None:
        await self._supervisor.start()
        if self.place is not None:  # another node may be busy, or lack the model's files
            self._supervisor.restart_timeout = self._loading_timeout

    async def stop(self) -> None:
        await self._supervisor.stop()
        self._lose("the engine was stopped")

    def check_health(self) -> None:
        _ = self._supervisor.running

    @abstractmethod
    async def _load_message(self, worker: Conversation[M]) -> msgspec.Struct:
        """Return the first message to a worker that has started."""

    @abstractmethod
    def _on_loaded(self, answer: M) -> None:
        """Record a new worker's facts about its model."""

    @abstractmethod
    def _deliver(self, message: M) -> None:
        """Process a message of the worker."""

    def _send(self, message: msgspec.Struct) -> None:
        """Send a message to the worker; raise BackendUnhealthy while there is none."""
        self._supervisor.running.send(message)

    @contextmanager
    def _in_worker(self, request: K, queue: Q, begin: msgspec.Struct, abort: msgspec.Struct) -> Iterator[None]:
        """Start a request in the worker, with a queue for its messages; at the end, abort it if it is incomplete.

        Raise BackendUnhealthy while there is no worker.
        """
        self._send(begin)
        self._requests[request] = queue
        try:
            yield
        finally:
            self._end(request, abort)

    def _end(self, request: K, abort: msgspec.Struct) -> Q | None:
        """Remove a request and return its queue, if any; abort it in the worker unless it is complete."""
        queue = self._requests.pop(request, None)
        if queue is not None and not queue.complete:
            with suppress(BackendUnhealthy):
                self._send(abort)
        return queue

    def _lose(self, why: str) -> None:
        """Fail every request in a dead worker."""
        lost = [queue for queue in self._requests.values() if not queue.complete]
        self._requests = {}
        self.record_death()
        for queue in lost:
            queue.fail(EngineLost(f"the request was lost: {why}", len(lost)))

    async def _create(self) -> Conversation[M]:
        conversation = Conversation(self._endpoint(), self._decode, self._heartbeat_timeout)
        message = partial(self._load_message, conversation)
        failed = f"{self._what} could not be started"
        self._on_loaded(await conversation.load(message, failed, self.report, lambda: self._supervisor.is_late))
        return conversation

    async def _watch(self, worker: Conversation[M]) -> str:
        # In a task of its own, so that a message wakes nothing above its reader.
        why = await asyncio.create_task(worker.follow(self._deliver))
        self._lose(why)
        return why

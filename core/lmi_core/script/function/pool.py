"""The processes that run a model function, and the queue in front of them."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from msgspec import structs

from lmi_core.configuration.properties import ServerProperties
from lmi_core.errors import BackendUnhealthy, FormatterFailed, GenerationFailed, LmiError, OutOfMemory
from lmi_core.host.client_queue import ClientQueue
from lmi_core.host.devices import CPU, visible_gpus
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.script.function.calls import FunctionBatch, FunctionCall
from lmi_core.script.function.process import FunctionProcess
from lmi_core.script.function.protocol import OUT_OF_MEMORY, Head, Load, Loaded, Request
from lmi_core.workers.isolation import Presence
from lmi_core.workers.replicas import ReplicaCount, Replicas

logger = logging.getLogger(__name__)

FAILED = 400  # this status and those above are failures
DEVICE_ID = "device_id"  # the property of model functions with their process's GPU
NO_DEVICE = "-1"


def device_id(process: int, chosen: Sequence[str] = ()) -> str:
    """Return the index of a process's GPU among those that it can see; "-1" if there is none.

    `chosen` are the devices to use, by default all.
    """
    devices = chosen or [str(gpu) for gpu in range(visible_gpus())] or [CPU]
    device = devices[process % len(devices)]
    return NO_DEVICE if device == CPU else device


@dataclass(frozen=True)
class PoolSettings:
    """The settings of a pool's processes and of their batches."""

    server: ServerProperties
    predict_timeout: float  # seconds
    python: str | None = None  # the interpreter; None: the current one
    rolling: bool = False  # whether the function itself accepts new calls while it works on others

    @property
    def count(self) -> ReplicaCount:
        """The number of processes; each device has its own, as in DJLServing."""
        least, most = self.server.workers(visible_gpus())
        devices = max(1, len(self.server.devices))
        return ReplicaCount(max(1, least) * devices, most * devices)

    @property
    def batch_size(self) -> int:
        return 1 if self.rolling else self.server.batch_size


class FunctionPool:
    """A pool of the minimum of processes, and of up to the maximum while all of them are busy."""

    def __init__(self, load: Load, settings: PoolSettings) -> None:
        self._load = load
        self._settings = settings
        self._queue: ClientQueue[FunctionCall] = ClientQueue()
        self._arrived = asyncio.Event()  # set when a call may be waiting
        self._changed = asyncio.Event()  # set when a process may be free
        self._dispatching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[FunctionCall] = set()  # requests that a process is working on
        self._failures: set[str] = set()  # failures of first calls that have already been logged
        idle_time = settings.server.max_idle_time
        self.replicas = Replicas(self._create, settings.count, max_sequences=1, max_idle_time=idle_time)
        self.replicas.drain_seconds = settings.predict_timeout
        self.replicas.on_change = self._changed.set

    async def start(self) -> None:
        """Start the first processes. Raise ConfigurationError if the script cannot be loaded."""
        await self.replicas.start()
        self._dispatching = asyncio.create_task(self._dispatch())

    async def change(self, settings: PoolSettings) -> None:
        """Change the settings: start missing processes, and end surplus ones after their calls.

        Raise ConfigurationError if one cannot be started.
        """
        self._settings = settings
        self.replicas.max_idle_time = settings.server.max_idle_time
        await self.replicas.scale(settings.count)

    async def stop(self) -> None:
        await self.replicas.stop()
        if self._dispatching is not None:
            self._dispatching.cancel()
            await asyncio.gather(self._dispatching, *self._tasks, return_exceptions=True)
        self._fail_queue(GenerationFailed("the model function was stopped"))

    def fail_calls(self, error: LmiError) -> None:
        """End every call with an error."""
        self._fail_queue(error)
        for process in self.replicas.members:
            process.fail_calls(error)

    def figures(self) -> EngineFigures:
        """Return the numbers of processes, running requests and waiting requests."""
        running = sum(not call.cancelled for call in list(self._running))
        restarts, workers = self.replicas.figures.restarts, sum(each.is_available for each in self.replicas.members)
        return EngineFigures(running, len(self._queue), restarts=restarts, workers=workers)

    def submit(
        self, function: str, request: Request, client: str = "", begin: Callable[[], object] | None = None
    ) -> FunctionCall:
        """Queue a client's request, and return its call. Raise BackendUnhealthy if no process is left."""
        self.replicas.check_health()
        call = FunctionCall(function, request, begin)
        call.on_cancel = lambda: self._queue.discard(client, call)  # until a process takes it
        self._queue.add(client, call)
        self._arrived.set()
        return call

    async def broadcast(self, function: str, request: Request, undo: tuple[str, Request]) -> None:
        """Call a function in every process. If it fails in one, undo the call and raise LmiError."""
        changed: list[FunctionProcess] = []
        try:
            for process in [each for each in self.replicas.members if each.is_available]:
                await self._call(process, function, request)
                changed.append(process)
        except LmiError:
            for process in changed:
                with suppress(LmiError):
                    await self._call(process, *undo)
            raise

    async def _call(self, process: FunctionProcess, function: str, request: Request) -> None:
        call = FunctionCall(function, request)
        self._begin(process, await process.isolation.enter(), [call])
        async with aclosing(call.answer()) as replies:
            async for reply in replies:
                if isinstance(reply, Head) and reply.code >= FAILED:
                    words = b" ".join(value for _, value in reply.content).decode(errors="replace")
                    failure = OutOfMemory if reply.code == OUT_OF_MEMORY else FormatterFailed
                    raise failure(f"{function} answered {reply.code}: {words}")

    async def _dispatch(self) -> None:
        while True:
            await self._until_waiting()
            deadline = asyncio.get_running_loop().time() + self._settings.server.max_batch_delay / 1000
            try:
                process = await self._free_process()  # first, so that the next client is chosen as late as possible
            except BackendUnhealthy as error:
                self._fail_queue(error)
                continue
            presence = await process.isolation.enter()  # before the calls are known, so that the process stays
            if calls := await self._gather(deadline):
                self._begin(process, presence, calls)
            else:
                presence.leave()

    async def _until_waiting(self, count: int = 1) -> None:
        """Wait until that many calls wait."""
        while len(self._queue) < count:
            self._arrived.clear()
            await self._arrived.wait()

    async def _gather(self, deadline: float) -> list[FunctionCall]:
        """Return the calls of a batch when it is full or at its deadline."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._until_waiting(self._settings.batch_size)
        return [self._queue.pop() for _ in range(min(len(self._queue), self._settings.batch_size))]

    async def _free_process(self) -> FunctionProcess:
        """Wait for a free process, and return the least busy one. Raise BackendUnhealthy if no process is left."""
        while True:
            await self.replicas.available()
            await self.replicas.drop_given_up()
            if free := [each for each in self.replicas.members if each.is_free]:
                return min(free, key=lambda process: process.isolation.inside)
            self.replicas.grow_if_full()
            self._changed.clear()
            await self._changed.wait()

    def _begin(self, process: FunctionProcess, presence: Presence, calls: Sequence[FunctionCall]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(self._answer(process, presence, calls))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, process: FunctionProcess, presence: Presence, calls: Sequence[FunctionCall]) -> None:
        self._running.update(calls)
        try:
            with presence:
                await process.run(FunctionBatch(calls))
        finally:
            self._running.difference_update(calls)
            self._changed.set()

    def _create(self, number: int) -> FunctionProcess:
        settings = self._settings
        own = {DEVICE_ID: device_id(number, settings.server.devices)}  # unless an option sets one
        load = structs.replace(self._load, properties=own | self._load.properties)
        threshold = settings.server.retry_threshold
        return FunctionProcess(load, settings.predict_timeout, threshold, settings.python, self._on_change)

    def _on_change(self, loaded: Loaded | None) -> None:
        """Look for a free process again, after one has been loaded or, with None, has died."""
        asyncio.get_running_loop().call_soon(self._changed.set)  # when it accepts calls, or none any longer
        if loaded is not None and loaded.failure is not None and loaded.failure not in self._failures:
            self._failures.add(loaded.failure)  # all processes fail for the same reason
            logger.error(
                "%s: %s failed in the initial call without content, in which it loads its model. It still receives "
                "requests; those that it cannot answer get status 424\n%s",
                self._load.script,
                self._load.function,
                loaded.failure,
            )

    def _fail_queue(self, error: LmiError) -> None:
        while self._queue:
            self._queue.pop().fail(error)

"""The processes that run a model function, and the queue in front of them."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from lmi_core.errors import (
    BackendUnhealthy,
    ConfigurationError,
    FormatterFailed,
    GenerationFailed,
    LmiError,
    OutOfMemory,
)
from lmi_core.host.client_queue import ClientQueue
from lmi_core.logs.formats import log_model, logging_of
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.script.function.calls import FunctionBatch, FunctionCall
from lmi_core.script.function.device_ids import DEVICE_ID, device_id
from lmi_core.script.function.process import FunctionProcess
from lmi_core.script.function.protocol import OUT_OF_MEMORY, Head, Load, Request
from lmi_core.workers.restarts import Restarts

logger = logging.getLogger(__name__)

FAILED = 400  # this status and those above are failures


@dataclass(frozen=True)
class PoolSettings:
    """The numbers of processes, the sizes of their batches, and their time limits."""

    predict_timeout: float  # seconds
    min_workers: int = 1
    max_workers: int = 1
    batch_size: int = 1
    max_batch_delay: float = 0.1  # seconds
    retry_threshold: int = 10  # consecutive restarts of a process that dies
    max_idle_time: float = 60  # seconds after which an idle process ends, if there are more than `min_workers`
    python: str | None = None  # the interpreter; None: the current one
    devices: tuple[str, ...] = ()  # assigned to processes in turn; empty: all processes see all devices
    rolling: bool = False  # whether the function itself accepts new calls while it works on others


class FunctionPool:
    """A pool of `min_workers` processes, and of up to `max_workers` while all of them are busy."""

    def __init__(self, load: Load, settings: PoolSettings) -> None:
        self.processes: list[FunctionProcess] = []
        self._load = load
        self._settings = settings
        self._queue: ClientQueue[FunctionCall] = ClientQueue()
        self._arrived = asyncio.Event()  # set when a call may be waiting
        self._changed = asyncio.Event()  # set when a process may be free, or when none is left
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.Task[None]] = set()  # tasks that end processes already removed from `processes`
        self._running: set[FunctionCall] = set()  # requests that a process is working on
        self._starting = 0
        self._numbers: set[int] = set()  # of the live workers
        self._failures: set[str] = set()  # failures of first calls that have already been logged
        self._restarts = Restarts(settings.retry_threshold, "the model function's worker", at_once=True)
        self._log_model: str | None = None
        self._why_unhealthy: str | None = "the model function is being loaded"

    async def start(self) -> None:
        """Start the first processes. Raise ConfigurationError if the script cannot be loaded."""
        self._log_model = log_model.get()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._settings.min_workers):
                    group.create_task(self._start_process())
        except ExceptionGroup as failures:
            await self.stop()
            raise failures.exceptions[0] from None
        self._why_unhealthy = None
        self._spawn(self._dispatch())

    async def change(self, settings: PoolSettings) -> None:
        """Change the settings: start missing processes, and end surplus idle ones.

        Raise ConfigurationError if one cannot be started.
        """
        self._settings = settings
        missing = settings.min_workers - len(self.processes) - self._starting
        await asyncio.gather(*(self._start_process() for _ in range(missing)))
        for process in [process for process in self.processes if process.calls == 0]:
            if len(self.processes) > settings.max_workers:
                self._end(process)
            else:
                self._end_once_idle(process)
        self._changed.set()

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for process in list(self.processes):
            self._end(process)
        await asyncio.gather(*self._ends)
        self._fail_queue(GenerationFailed("the model function was stopped"))

    def fail_calls(self, error: LmiError) -> None:
        """End every call with an error."""
        self._fail_queue(error)
        for process in self.processes:
            process.fail_calls(error)

    def check_health(self) -> None:
        """Raise BackendUnhealthy while no process runs."""
        if self._why_unhealthy is not None:
            raise BackendUnhealthy(self._why_unhealthy)

    async def wait_given_up(self) -> str:
        await self._restarts.given_up.wait()
        return self._restarts.reason

    def figures(self) -> EngineFigures:
        """Return the numbers of processes, running requests and waiting requests."""
        running = sum(not call.cancelled for call in list(self._running))
        return EngineFigures(running, len(self._queue), restarts=self._restarts.count, workers=len(self.processes))

    def submit(
        self, function: str, request: Request, client: str = "", begin: Callable[[], object] | None = None
    ) -> FunctionCall:
        """Queue a client's request, and return its call. Raise BackendUnhealthy if no process is left."""
        self.check_health()
        call = FunctionCall(function, request, begin)
        call.on_cancel = lambda: self._queue.discard(client, call)  # until a process takes it
        self._queue.add(client, call)
        self._arrived.set()
        return call

    async def broadcast(self, function: str, request: Request, undo: tuple[str, Request]) -> None:
        """Call a function in every process. If it fails in one, undo the call and raise LmiError."""
        changed: list[FunctionProcess] = []
        try:
            for process in list(self.processes):
                await self._call(process, function, request)
                changed.append(process)
        except LmiError:
            for process in changed:
                with suppress(LmiError):
                    await self._call(process, *undo)
            raise

    async def _call(self, process: FunctionProcess, function: str, request: Request) -> None:
        call = FunctionCall(function, request)
        self._spawn(self._run(process, FunctionBatch([call])))
        async with aclosing(call.answer()) as replies:
            async for reply in replies:
                if isinstance(reply, Head) and reply.code >= FAILED:
                    words = b" ".join(value for _, value in reply.content).decode(errors="replace")
                    failure = OutOfMemory if reply.code == OUT_OF_MEMORY else FormatterFailed
                    raise failure(f"{function} answered {reply.code}: {words}")

    async def _dispatch(self) -> None:
        while True:
            await self._until_waiting()
            deadline = asyncio.get_running_loop().time() + self._settings.max_batch_delay
            process = await self._free_process()  # first, so that the next client is chosen as late as possible
            if process is None:
                self._fail_queue(BackendUnhealthy(str(self._why_unhealthy)))
            elif calls := await self._gather(deadline):
                self._spawn(self._answer(process, calls))
                await asyncio.sleep(0)  # lets the process become busy
            else:
                self._end_once_idle(process)

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

    async def _free_process(self) -> FunctionProcess | None:
        """Wait for an available process, and return the least busy one, or None if no process is left."""
        while True:
            free = [process for process in self.processes if process.free]
            if free:
                chosen = min(free, key=lambda process: process.calls)
                chosen.idle_since = None
                return chosen
            if self._restarts.given_up.is_set():
                return None
            if len(self.processes) + self._starting < self._settings.max_workers:
                self._spawn(self._add_process())
            self._changed.clear()
            await self._changed.wait()

    async def _answer(self, process: FunctionProcess, calls: Sequence[FunctionCall]) -> None:
        self._running.update(calls)
        try:
            await self._run(process, FunctionBatch(calls))
        finally:
            self._running.difference_update(calls)

    async def _run(self, process: FunctionProcess, batch: FunctionBatch) -> None:
        await process.run(batch)
        if not process.died.is_set():
            self._restarts.reset_count()
        self._changed.set()
        self._end_once_idle(process)

    def _end_once_idle(self, process: FunctionProcess) -> None:
        loop = asyncio.get_running_loop()
        if self._spare > 0 and process.calls == 0:
            process.idle_since = loop.time()
            loop.call_later(self._settings.max_idle_time, self._end_if_idle, process, process.idle_since)

    def _end_if_idle(self, process: FunctionProcess, since: float) -> None:
        if self._spare > 0 and process in self.processes and process.calls == 0 and process.idle_since == since:
            self._end(process)

    def _end(self, process: FunctionProcess) -> None:
        self.processes.remove(process)
        self._numbers.discard(process.number)
        task = asyncio.create_task(process.stop())
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    @property
    def _spare(self) -> int:
        return len(self.processes) - self._settings.min_workers

    async def _start_process(self) -> FunctionProcess:
        with logging_of(self._log_model):
            return await self._start_logged_process()

    async def _start_logged_process(self) -> FunctionProcess:
        process = FunctionProcess(self._settings.predict_timeout, self._settings.python)
        self._starting += 1
        number = next(number for number in itertools.count() if number not in self._numbers)
        self._numbers.add(number)
        try:
            own = {DEVICE_ID: device_id(number, self._settings.devices)}  # unless an option sets one
            await process.start(structs.replace(self._load, properties=own | self._load.properties))
        except BaseException:
            self._numbers.discard(number)
            raise
        finally:
            self._starting -= 1
        process.number = number
        if process.loaded.failure is not None and process.loaded.failure not in self._failures:
            self._failures.add(process.loaded.failure)  # all processes fail for the same reason
            logger.error(
                "%s: %s failed in the initial call without content, in which it loads its model. It still receives "
                "requests; those that it cannot answer get status 424\n%s",
                self._load.script,
                self._load.function,
                process.loaded.failure,
            )
        self.processes.append(process)
        self._why_unhealthy = None
        self._changed.set()
        self._spawn(self._supervise(process))
        self._end_once_idle(process)  # in case another process has already served the call that needed it
        return process

    async def _add_process(self) -> None:
        try:
            await self._start_process()
        except ConfigurationError as error:
            logger.error("an additional worker could not be started: %s", error.message)

    async def _supervise(self, process: FunctionProcess) -> None:
        await process.died.wait()
        if process not in self.processes:
            return  # the process was ended
        self._end(process)
        if not self.processes:
            self._why_unhealthy = "the model function's worker died and is being restarted"
        if await self._restarts.attempt(self._start_process) is None and not self.processes:
            self._why_unhealthy = self._restarts.reason
            self._restarts.give_up()
            self._changed.set()

    def _fail_queue(self, error: LmiError) -> None:
        while self._queue:
            self._queue.pop().fail(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""Threads for work on clients' data that would block the event loop; the server's own work uses other threads."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from lmi_core.deadlines.bounded import NeedsTimeError, seconds_for, without_delay
from lmi_core.errors import InvalidPayload
from lmi_core.host.client_queue import ClientQueue
from lmi_core.host.memory import return_free_memory

T = TypeVar("T")

LONG_TEXT = 20_000  # characters or bytes; parsing, checking or tokenizing them takes milliseconds
VERY_LONG_TEXT = 100_000  # takes tens of milliseconds
HUGE_TEXT = 1_000_000  # takes up to seconds
STEP_SECONDS = 0.05  # of CPU time, after which work in steps yields to other work
REST_SECONDS = 3.0  # after the most recent very long text

current_client: ContextVar[str] = ContextVar("current_client", default="")  # the client that the current task works for


class WorkThread:
    """A thread that runs one piece of work at a time, so that it uses at most one core; clients take turns.

    The interpreter still lets the event loop run every few milliseconds.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: ClientQueue[tuple[Future[Any], Callable[[], Any]]] = ClientQueue()
        self._changing = threading.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of the work. Cancelling drops work that has not started."""
        future: Future[T] = Future()
        with self._changing:
            self._waiting.add(current_client.get(), (future, work))
        self._thread.submit(self._run_next)
        return await asyncio.wrap_future(future)

    def _run_next(self) -> None:
        with self._changing:
            future, work = self._waiting.pop()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
        del future, work  # the traceback of an error refers to this frame


# Work on a text never waits for much longer texts, and reading never waits for huge answers.
READING = WorkThread("lmi-reading")
READING_VERY_LONG = WorkThread("lmi-reading-very-long")
READING_HUGE = WorkThread("lmi-reading-huge")
WRITING = WorkThread("lmi-writing")
LENGTHY = WorkThread("lmi-lengthy")  # for work that has yielded, which waits only for similar work


async def run_off_loop(size: int, work: Callable[[], T]) -> T:
    """Return the result of work on a client's data of that many characters or bytes.

    Short data is read immediately, and longer data in a thread.
    """
    if size <= LONG_TEXT:
        try:
            return without_delay(work)
        except NeedsTimeError:
            return await LENGTHY.run(work)
    if size <= VERY_LONG_TEXT:
        return await READING.run(work)
    loop = asyncio.get_running_loop()

    def run() -> T:
        try:
            return work()
        finally:  # also if the client has disconnected
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_memory.return_when_idle)

    return await (READING_VERY_LONG if size <= HUGE_TEXT else READING_HUGE).run(run)


async def read_in_steps(size: int, steps: Callable[[], Iterator[T | None]]) -> T:
    """Return the first result that the steps yield; they yield None where they may be interrupted.

    Between the steps for long data, other clients have their turns, and the work ends if the task is cancelled. Raise
    InvalidPayload if it takes too much CPU time.
    """
    if size <= LONG_TEXT:
        return await run_off_loop(size, lambda: next(found for found in steps() if found is not None))
    running, spent, limit = steps(), 0.0, seconds_for(size)
    while spent <= limit:
        found, seconds = await run_off_loop(size, partial(_run_steps, running))
        if found is not None:
            return found
        spent += seconds
    raise InvalidPayload(f"the text takes more than {limit:g} seconds of processor time")


def _run_steps(steps: Iterator[T | None]) -> tuple[T | None, float]:
    """Run some steps, and return the result, if they yield one, and the CPU time that they took."""
    begin, found = time.thread_time(), None
    while found is None and time.thread_time() - begin < STEP_SECONDS:
        found = next(steps)
    return found, time.thread_time() - begin


class _Memory:
    """Memory of very long texts, returned from the allocator to the system when no more texts arrive."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def return_when_idle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(REST_SECONDS, lambda: loop.run_in_executor(None, return_free_memory))


_memory = _Memory()

"""An event loop in its own thread, for callers without one, or with a running one, as in a notebook."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from lmi_core.errors import ModelNotReady

T = TypeVar("T")

CLEANUP_SECONDS = 10.0  # that cancelled work may take


class LoopThread:
    """A running event loop that works for other threads."""

    def __init__(self, owner: str = "event loop") -> None:
        self._owner = owner
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._tasks: dict[Future[Any], asyncio.Task[Any]] = {}
        # A daemon thread, because at exit the interpreter waits for all others before anything can close this one.
        self._thread = threading.Thread(target=self._run, name=f"lmi {owner}", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the loop has ended."""
        return not self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in the thread, which cannot wait for itself."""
        return threading.current_thread() is self._thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine in the thread and return its result; Ctrl-C cancels it."""
        if self.closed:
            work.close()
            raise self._closed_error()
        outcome: Future[T] = Future()
        self._loop.call_soon_threadsafe(self._start, work, outcome)
        try:
            return outcome.result()
        except BaseException:
            if not outcome.done():  # the caller was interrupted
                self._loop.call_soon_threadsafe(lambda: self._tasks[outcome].cancel())
                wait([outcome], CLEANUP_SECONDS)
            raise

    def iterate(self, source: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """Yield the items of a generator that runs in the thread; closing the iterator closes the generator."""
        try:
            while (item := self.run(_next(source))) is not None:
                yield item[0]
        finally:
            if not self.closed:
                self.run(source.aclose())

    def close(self) -> None:
        """Cancel the remaining tasks and end the loop; do nothing if it is closed."""
        if not self.closed:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _closed_error(self) -> ModelNotReady:
        return ModelNotReady(f"the {self._owner} is closed")

    def _start(self, work: Coroutine[Any, Any, T], outcome: Future[T]) -> None:
        task = self._tasks[outcome] = self._loop.create_task(work)
        task.add_done_callback(lambda _: self._finish(outcome))

    def _finish(self, outcome: Future[Any]) -> None:
        task = self._tasks.pop(outcome)
        if task.cancelled():
            outcome.set_exception(self._closed_error())  # an interrupted caller does not read it
        elif error := task.exception():
            outcome.set_exception(error)
        else:
            outcome.set_result(task.result())

    def _run(self) -> None:
        with self._runner:  # cancels the remaining tasks at the end, and closes the loop
            self._loop.run_forever()


async def _next(source: AsyncGenerator[T, None]) -> tuple[T] | None:
    """Return the next item in a tuple, or None at the end: a task cannot raise StopAsyncIteration to a generator."""
    async for item in source:
        return (item,)
    return None

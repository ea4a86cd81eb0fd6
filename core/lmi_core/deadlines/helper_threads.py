"""Helper threads; callers stop waiting if the work takes too long."""

import ctypes
import threading
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class TooLateError(Exception):
    """Raised when work takes longer than the caller waits."""


class Abandoned(BaseException):
    """Raised in an abandoned thread; not caught by `except Exception`."""


class _Job:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.answer: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()


class _Helper:
    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name="lmi-helper", daemon=True)

    def _serve(self) -> None:
        try:
            while (job := self.jobs.get()) is not None:
                try:
                    job.answer.put((job.work(), None))
                except Abandoned:
                    raise
                except BaseException as error:  # including panics in Rust code
                    job.answer.put((None, error))
                del job
        except Abandoned:
            return

    def abandon(self) -> None:
        """End the thread: Python code at once, compiled code when it returns."""
        self.jobs.put(None)
        self.interrupt()

    def interrupt(self) -> None:
        """Raise the exception in the thread, again if it was lost: callbacks of weak references ignore it."""
        assert self.thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread.ident), ctypes.py_object(Abandoned))


class HelperThreads:
    """Helper threads for one kind of work. At most one is abandoned with work that takes too long."""

    def __init__(self) -> None:
        self._idle: list[_Helper] = []
        weakref.finalize(self, _end_all, self._idle)
        self._abandoned: _Helper | None = None

    def run(self, seconds: float, work: Callable[[], T]) -> T:
        """Return the result of the work.

        Raise TooLateError if it takes too long, or while an abandoned thread still runs.
        """
        if self._abandoned is not None and self._abandoned.thread.is_alive():
            self._abandoned.interrupt()
            raise TooLateError
        helper, job = self._helper(), _Job(work)
        helper.jobs.put(job)
        try:
            result, error = job.answer.get(timeout=seconds)
        except Empty:
            helper.abandon()
            self._abandoned = helper
            raise TooLateError from None
        self._idle.append(helper)
        if error is not None:
            raise error
        found: T = result
        return found

    def _helper(self) -> _Helper:
        try:
            return self._idle.pop()
        except IndexError:
            helper = _Helper()
            helper.thread.start()
            return helper


def _end_all(helpers: list[_Helper]) -> None:
    for helper in helpers:
        helper.jobs.put(None)

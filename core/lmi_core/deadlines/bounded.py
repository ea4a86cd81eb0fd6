"""A function whose duration depends on a client's text, within a deadline."""

import ctypes
import threading
import weakref
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LOOP_SECONDS = 0.01  # that the event loop waits for the thread
THREAD_SECONDS = 1.0  # that the thread may take before a process repeats the work
MAX_SECONDS = 2.0  # of CPU time in that process
CHARACTERS_PER_SECOND = 200_000  # adds to the limit; tokenizers are ten times as fast


def seconds_for(characters: int) -> float:
    """Return the CPU time that work on a client's text may take."""
    return MAX_SECONDS + characters / CHARACTERS_PER_SECOND


class NeedsTimeError(Exception):
    """Raised by work on the event loop that must be repeated in another thread."""


class _ThreadState(threading.local):
    on_event_loop = False


_current = _ThreadState()


def without_delay(work: Callable[[], T]) -> T:
    """Return the result of the work. The work raises NeedsTimeError if it would take long."""
    before, _current.on_event_loop = _current.on_event_loop, True
    try:
        return work()
    finally:
        _current.on_event_loop = before


def on_event_loop() -> bool:
    """Return whether the event loop waits for this thread."""
    return _current.on_event_loop


class Bounded(Generic[P, T]):
    """A function that runs in this process if it is fast, and otherwise in a process that can be killed."""

    def __init__(self, function: Callable[P, T], apart: Callable[..., T]) -> None:
        """`apart` calls the same function in another process; its first argument is the limit on CPU time."""
        self._function, self._apart = function, apart
        self._threads = HelperThreads()

    def run(self, characters: int, *arguments: P.args, **named: P.kwargs) -> T:
        """Call the function and return its result.

        If it takes too long, raise CallTooCostlyError; on the event loop, raise NeedsTimeError.
        """
        seconds = LOOP_SECONDS if _current.on_event_loop else THREAD_SECONDS + characters / CHARACTERS_PER_SECOND
        try:
            return self._threads.run(seconds, partial(self._function, *arguments, **named))
        except TooLateError:
            return self.run_apart(characters, *arguments, **named)

    def run_apart(self, characters: int, *arguments: P.args, **named: P.kwargs) -> T:
        """Call the function in another process and return its result."""
        if on_event_loop():
            raise NeedsTimeError
        return self._apart(seconds_for(characters), *arguments, **named)


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

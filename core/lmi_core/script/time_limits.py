"""Time limits on user code in the server's process: on calls, and on loading a script."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

SIGNAL = signal.SIGVTALRM
LOOK_SECONDS = 0.05  # between checks whether a script is still needed
AGAIN_SECONDS = 0.2  # after which a script is interrupted again, because it may have caught the first exception
GRACE_SECONDS = 2.0  # for an interrupted script in a thread, which then continues unobserved

_unwanted: ContextVar[threading.Event | None] = ContextVar("unwanted", default=None)


class TimeLimitExceeded(BaseException):
    """The time limit is exceeded. This is not an Exception, which user code may catch."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded in the body after that much CPU time; works only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handle_signal()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def handle_signal() -> None:
    """Make SIGNAL raise TimeLimitExceeded in the main thread; call this there."""
    if signal.getsignal(SIGNAL) is not _raise_exceeded:
        signal.signal(SIGNAL, _raise_exceeded)


def _raise_exceeded(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimitExceeded


@contextmanager
def unless(unwanted: threading.Event) -> Iterator[None]:
    """Stop loading scripts in this context, or in threads with its copy, when the event is set."""
    token = _unwanted.set(unwanted)
    try:
        yield
    finally:
        _unwanted.reset(token)


def load_within(seconds: float, load: Callable[[], T]) -> T:
    """Load a script and return the result.

    Raise TimeLimitExceeded if it takes too long or is no longer wanted. In the main thread, a signal interrupts the
    script. Elsewhere, it runs in its own thread, which is abandoned if it waits forever.
    """
    unwanted = _unwanted.get()
    if threading.current_thread() is threading.main_thread():
        return _load_here(seconds, load, unwanted)
    return _load_beside(seconds, load, unwanted)


def _load_here(seconds: float, load: Callable[[], T], unwanted: threading.Event | None) -> T:
    handle_signal()
    ended, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        _wait(ended, seconds, unwanted)
        while not ended.wait(AGAIN_SECONDS):
            signal.pthread_kill(main, SIGNAL)

    watching = threading.Thread(target=watch, name="script-limit", daemon=True)
    watching.start()
    try:
        return load()
    finally:
        ended.set()
        watching.join()


def _load_beside(seconds: float, load: Callable[[], T], unwanted: threading.Event | None) -> T:
    ended, found = threading.Event(), list[T]()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            found.append(load())
        except BaseException as error:  # a script may raise anything
            failures.append(error)
        finally:
            ended.set()

    running = threading.Thread(target=run, name="script", daemon=True)
    running.start()
    if not _wait(ended, seconds, unwanted):
        last = time.monotonic() + GRACE_SECONDS
        while not ended.wait(AGAIN_SECONDS) and time.monotonic() < last:
            _interrupt(running)
    if failures:
        raise failures[0]
    if not found:
        raise TimeLimitExceeded
    return found[0]


def _wait(ended: threading.Event, seconds: float, unwanted: threading.Event | None) -> bool:
    """Wait at most this long for the end, while the result is wanted; return whether it ended."""
    if unwanted is None:
        return ended.wait(seconds)
    last = time.monotonic() + seconds
    while not ended.wait(LOOK_SECONDS):
        if unwanted.is_set() or time.monotonic() >= last:
            return False
    return True


def _interrupt(thread: threading.Thread) -> None:
    """Raise TimeLimitExceeded in a thread when it runs Python code again."""
    import ctypes  # servers need not wait for this import

    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(TimeLimitExceeded))

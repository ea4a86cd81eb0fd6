"""A time limit on user code, which would otherwise block the server's event loop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNAL = signal.SIGVTALRM


class TimeLimitExceeded(BaseException):
    """The time is up; not an Exception, which user code may catch."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeLimitExceeded in the body once it has computed for so long, which only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heed_signal()
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def heed_signal() -> None:
    """Have SIGNAL raise TimeLimitExceeded in the main thread, in which this is called."""
    if signal.getsignal(SIGNAL) is not _exceeded:
        signal.signal(SIGNAL, _exceeded)


def _exceeded(_number: int, _frame: FrameType | None) -> None:
    raise TimeLimitExceeded

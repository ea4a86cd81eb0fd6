"""Work that must give way when it takes long, where others wait for its thread."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NeedsTimeError(Exception):
    """Raised by work that has given way: it is to be done again where it may take its time."""


class _Haste(threading.local):
    seconds: float | None = None  # of the thread's processor time, until somebody asks for the deadline
    deadline: float | None = None  # in the thread's processor time


_haste = _Haste()


def in_haste(seconds: float, work: Callable[[], T]) -> T:
    """Return what the work returns, which may raise NeedsTimeError once it has used that much processor time.

    The time begins when the work first asks for its deadline: to read that clock takes longer than most work.
    """
    before = _haste.seconds, _haste.deadline
    _haste.seconds, _haste.deadline = seconds, None
    try:
        return work()
    finally:
        _haste.seconds, _haste.deadline = before


def hasty_deadline() -> float | None:
    """Return when this thread's work has to give way, in the thread's processor time; None where it may take long."""
    if _haste.deadline is None and _haste.seconds is not None:
        _haste.deadline = time.thread_time() + _haste.seconds
    return _haste.deadline

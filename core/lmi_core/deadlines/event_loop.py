"""Work on the event loop, which raises NeedsTimeError instead of holding the loop for long."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NeedsTimeError(Exception):
    """Raised by work on the event loop that has to be repeated in another thread."""


class _Current(threading.local):
    on_event_loop = False


_current = _Current()


def without_delay(work: Callable[[], T]) -> T:
    """Return what the work returns. The work raises NeedsTimeError where it would take long."""
    before, _current.on_event_loop = _current.on_event_loop, True
    try:
        return work()
    finally:
        _current.on_event_loop = before


def on_event_loop() -> bool:
    """Return whether the event loop waits for the work of this thread."""
    return _current.on_event_loop

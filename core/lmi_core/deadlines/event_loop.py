"""Work on the event loop, which raises NeedsTimeError instead of blocking the loop."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NeedsTimeError(Exception):
    """Raised by work on the event loop that must be repeated in another thread."""


class _Current(threading.local):
    on_event_loop = False


_current = _Current()


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

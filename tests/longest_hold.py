"""How long an event loop is held by one callback, in seconds of the thread's own CPU time on an ordinary machine."""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

ORDINARY = 0.0023  # seconds of CPU time, which the work below takes where nothing else uses the processor


def slowness() -> float:
    """Return how many times longer than usual work takes now; CPU time is more where others share a core's caches."""
    return max(1.0, statistics.median(_reference() for _ in range(5)) / ORDINARY)


def _reference() -> float:
    begun = time.thread_time()
    values = [{"id": number, "text": str(number)} for number in range(4000)]
    assert len(json.loads(json.dumps(values))) == len(values)
    return time.thread_time() - begun


class Hold:
    """The longest callback so far."""

    seconds = 0.0
    callback = ""


@contextmanager
def longest_hold() -> Iterator[Hold]:
    """Measure every callback of this process's event loops; the result is known at the end.

    What the tests before have left is not searched for garbage any more.
    """
    hold, run = Hold(), asyncio.Handle._run
    gc.collect()
    gc.freeze()
    before = slowness()

    def measured(handle: asyncio.Handle) -> Any:
        begun = time.thread_time()
        try:
            return run(handle)
        finally:
            seconds = time.thread_time() - begun
            if seconds > hold.seconds:
                hold.seconds, hold.callback = seconds, repr(handle)

    with patch.object(asyncio.Handle, "_run", measured):
        yield hold
    hold.seconds /= max(before, slowness())

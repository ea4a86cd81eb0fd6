"""A thread that fills token masks: nothing can interrupt a mask that takes long, so the thread is left to finish it."""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue

LOOK_SECONDS = 0.01  # between checks of a mask that takes long
LOWEST_PRIORITY = 19


class Masks:
    """Masks to be filled one by one, and the progress."""

    def __init__(self, fills: Sequence[Callable[[], None]]) -> None:
        self._fills = fills
        self._done = threading.Event()
        self._current = (0, float("inf"))  # the index of a mask, and the thread's CPU time at its start

    def run(self, thread: "MaskThread") -> None:
        """Fill the masks, until the thread is abandoned."""
        for index, fill in enumerate(self._fills):
            self._current = (index, cpu_seconds(thread.clock))
            fill()
            if thread.left:
                return
        self._done.set()

    def wait(self, seconds: Sequence[float], thread: "MaskThread") -> int | None:
        """Wait until all are filled; return the index of one that exceeds its CPU time, if any."""
        if self._done.wait(min(seconds)):
            return None
        while not self._done.wait(LOOK_SECONDS):
            index, begun = self._current
            if cpu_seconds(thread.clock) - begun > seconds[index]:
                return index
        return None


class MaskThread:
    """A thread that fills masks until it is abandoned."""

    def __init__(self) -> None:
        self.left = False
        self._masks: SimpleQueue[Masks] = SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="masks", daemon=True)
        self.thread.start()
        self.clock = clock_of(self.thread)

    def begin(self, masks: Masks) -> None:
        self._masks.put(masks)

    def leave(self) -> None:
        """Let the thread finish its mask on idle cores, and then end."""
        self.left = True
        if sys.platform == "linux" and self.thread.native_id is not None:
            with suppress(OSError):  # the thread has exited
                os.setpriority(os.PRIO_PROCESS, self.thread.native_id, LOWEST_PRIORITY)

    def _run(self) -> None:
        while not self.left:
            self._masks.get().run(self)


def clock_of(thread: threading.Thread) -> int | None:
    """Return the clock of a thread's CPU time, None if the system has none."""
    known = hasattr(time, "pthread_getcpuclockid") and thread.ident is not None
    return time.pthread_getcpuclockid(thread.ident) if known and thread.ident is not None else None


def cpu_seconds(clock: int | None) -> float:
    """Return the CPU time of a thread, or the wall time if unknown."""
    return time.monotonic() if clock is None else time.clock_gettime(clock)

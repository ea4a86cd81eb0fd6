"""The processor time that this thread takes for something, whatever else the machine does."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class ProcessorTime:
    """The seconds taken, known at the end."""

    seconds = 0.0


@contextmanager
def processor_time() -> Iterator[ProcessorTime]:
    """Measure the body. Nobody looks for garbage meanwhile, of which the tests before may have left much."""
    taken, collects = ProcessorTime(), gc.isenabled()
    gc.disable()
    begun = time.thread_time()
    try:
        yield taken
    finally:
        taken.seconds = time.thread_time() - begun
        if collects:
            gc.enable()

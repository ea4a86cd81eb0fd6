"""A quick end of vLLM's processes, which otherwise collect garbage several times, for seconds."""

import atexit
import gc
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import resource_tracker

import psutil

from lmi_core.host.processes import process_tree

END_IS_NEAR = signal.SIGURG  # ignored by processes that do not handle it, such as those started by libraries
SPANS_MILLISECONDS = 2000  # for a collector that does not respond


def hold_back_sigterm() -> None:
    """Protect processes started by this thread from SIGTERM, which vLLM sends to a core that is already ending."""
    resource_tracker.ensure_running()  # if it started later, it would let SIGTERM through
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def skip_collection() -> None:
    """Make this process skip garbage collection after the announcement of its end."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(END_IS_NEAR, _leave_garbage)


def announce_end(process_id: int) -> None:
    """Announce the end to a core and its workers."""
    for process in process_tree(process_id):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(END_IS_NEAR)


def _leave_garbage(number: int, frame: object) -> None:
    if _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)
        atexit.register(_end)  # runs before all other handlers


def _end() -> None:
    """End this process like a forked one, without further cleanup except sending spans."""
    try:
        send_spans()
    finally:
        os._exit(0)


def send_spans() -> None:
    """Send the spans of this process, if any."""
    tracing = sys.modules.get("opentelemetry.trace")
    flush = None if tracing is None else getattr(tracing.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        flush(SPANS_MILLISECONDS)


def _freeze(phase: str, info: Mapping[str, int]) -> None:
    """Freeze all objects before a garbage collection, so that it finds nothing to examine."""
    if phase == "start":
        gc.freeze()

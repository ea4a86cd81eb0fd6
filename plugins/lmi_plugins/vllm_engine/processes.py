"""Additions to vLLM's own processes: vLLM calls `prepare`, as its plugin, in each process that it starts.

The processes end quickly, because they skip garbage collections, which would take seconds.
"""

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

import psutil

from lmi_core.host.processes import process_tree
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, MODEL_VARIABLE, configure_logging_of_another_program
from lmi_plugins.vllm_engine.failures import VARIABLE as FAILURES_VARIABLE
from lmi_plugins.vllm_engine.failures import report_failures
from lmi_plugins.vllm_engine.guide_libraries import choose_library_by_request
from lmi_plugins.vllm_engine.socket_folder import FOLDER_VARIABLE, SOCKETS_VARIABLE, meet_in_folder, remove_sockets

SERVER_VARIABLE = "LMI_VLLM"  # environment variable of the server's processes: the server's process id
END_WITH_PARENT = "end-with-parent"  # name of a thread


def server_id() -> str:
    """Return the process id of the server, for the environment: this process's, unless it belongs to an engine.

    A program with engines may start a server, which inherits its environment; the inherited value is ignored.
    """
    own, named = str(os.getpid()), os.environ.get(SERVER_VARIABLE)
    if named in (None, own):
        return own
    # multiprocessing sets this name before it imports the parent's main module.
    if multiprocessing.parent_process() is not None or multiprocessing.current_process().name != "MainProcess":
        return named
    os.environ.pop(FAILURES_VARIABLE, None)
    folder = os.environ.pop(FOLDER_VARIABLE, None)
    if folder is not None and os.environ.get(SOCKETS_VARIABLE) == folder:
        del os.environ[SOCKETS_VARIABLE]
    return own


def is_server() -> bool:
    """Return whether this process is the server, not one of an engine's."""
    return os.environ.get(SERVER_VARIABLE) == str(os.getpid())


def prepare() -> None:
    """Prepare a process of this server's vLLM; leave other users' processes unchanged."""
    parent = multiprocessing.parent_process()
    if parent is None or SERVER_VARIABLE not in os.environ:
        return
    from lmi_plugins.vllm_engine.adapters.cpu_adapters import mend_adapters
    from lmi_plugins.vllm_engine.requests.cpu_seeds import mend_seeds

    attach(parent)
    configure_logging_of_another_program(os.environ.get(LOG_LEVEL_VARIABLE, "info"))
    report_failures()
    mend_adapters()
    mend_seeds()
    skip_collection()


def attach(parent: BaseProcess) -> None:
    """End this process with its parent, and not before: a separate process group shields it from the terminal's Ctrl-C.

    It stays in the same session: on a busy machine, Linux divides time among sessions, and processes that wait for each
    other at every step run best in one. SIGTERM and SIGHUP, which systemd and containers may send to all processes,
    are left to the server: it lets requests finish, and then ends vLLM with SIGINT. It ignores SIGUSR1 and SIGUSR2.
    """
    os.setpgid(0, 0)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda *_: None)
    end_with(parent)


def run_core(*arguments: Any, **options: Any) -> None:
    """Run a core as vLLM does, in a process that ends with the server, even during its start, and with its workers."""
    from vllm.v1.engine.core import EngineCoreProc

    os.environ[MODEL_VARIABLE] = options["vllm_config"].model_config.served_model_name
    meet_in_folder()
    choose_library_by_request()
    parent = multiprocessing.parent_process()
    if parent is not None:
        end_with(parent)
    try:
        EngineCoreProc.run_engine_core(*arguments, **options)
    finally:
        for worker in multiprocessing.active_children():  # multiprocessing sends SIGTERM and waits forever
            worker.kill()


def end_with(parent: BaseProcess) -> None:
    """End this process when its parent ends."""
    if not any(thread.name == END_WITH_PARENT for thread in threading.enumerate()):
        threading.Thread(target=_exit_with, args=(parent,), name=END_WITH_PARENT, daemon=True).start()


def kill_with_children(process_id: int) -> None:
    """Kill a core and its workers, even if they are stopped."""
    for process in process_tree(process_id):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _exit_with(parent: BaseProcess) -> None:
    parent.join()
    # Otherwise, the server lives, and may need this process for a new core
    if str(parent.pid) == os.environ.get(SERVER_VARIABLE):
        remove_sockets()
    os._exit(1)


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

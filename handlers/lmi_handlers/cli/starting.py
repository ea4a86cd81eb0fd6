"""The first moments of `lmi serve`, which reports its start before it imports large modules."""

import asyncio
import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import typer

from lmi_core.logs.level import change_log_level
from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.logs.logs import (
    ACCESS_LOG,
    JSON,
    LOG_FORMAT_VARIABLE,
    LOG_LEVEL_VARIABLE,
    configure_logging,
    terminal_thread,
)
from lmi_handlers.process.lifetime import leave

logger = logging.getLogger(__name__)

SOCKETS = ("host", "worker-*", "metrics-*", "trial-*")  # sockets and locks of front ends and their engines


@contextmanager
def starting(log_level: str | None, log_format: str = "text", *, access_log: bool = True) -> Iterator[None]:
    """Configure the log, report the start immediately, and end the process after the body, without waiting for
    threads that still import libraries.

    The default level is info or, on a terminal, warning until the server is ready.
    """
    is_quiet = log_level is None and log_format != JSON and sys.stderr.isatty()
    log_level = log_level or ("warning" if is_quiet else "info")
    os.environ[LOG_FORMAT_VARIABLE] = log_format  # workers read it; the next one too
    os.environ[LOG_LEVEL_VARIABLE] = log_level
    configure_logging(log_level)
    logging.getLogger(ACCESS_LOG).disabled = not access_log
    gc.disable()  # until the models are loaded: imports create no garbage, and collection takes a quarter of the time
    progress = LoadingProgress()
    progress.report("starting")
    if (thread := terminal_thread()) is not None:
        thread.show(progress.__str__)
    else:
        logger.info("starting")
    status = 0
    try:
        yield
    except typer.Exit as end:
        status = end.exit_code
    leave(status)


def announce(log: logging.Logger, ready: str, addresses: Sequence[str], level: str) -> None:
    """Log that the models are loaded, or print the addresses on a terminal, and log at this level from now on."""
    if (thread := terminal_thread()) is None or os.environ.get(LOG_FORMAT_VARIABLE) == JSON:
        log.info("%s", ready)
        return
    thread.show(None)  # the progress of the start
    for line in addresses:
        thread.write(line)
    change_log_level(level)


def begin_front() -> str:
    """Make this front end exit with its parent, and return the log level chosen by the parent."""
    from lmi_core.workers.shared_worker import host_of_this_process
    from lmi_core.workers.worker import exit_with_parent

    def remove_sockets() -> None:
        """Remove the files of a killed parent."""
        if (host := host_of_this_process()) is not None:
            with suppress(OSError):
                for pattern in SOCKETS:
                    for each in host.parent.glob(pattern):
                        each.unlink(missing_ok=True)  # several front ends may do this at the same time
                host.parent.rmdir()

    threading.Thread(target=exit_with_parent, args=(remove_sockets,), daemon=True).start()
    return os.environ.get(LOG_LEVEL_VARIABLE, "info")


def start_event_loop(models: Sequence[str], options: Sequence[str], *, forks_only: bool = False) -> asyncio.Runner:
    """Return the runner of the server's event loop, and start an obviously needed engine in it.

    The arguments are those of `lmi serve`. With `forks_only`, start only the process that workers are forked from. The
    runner is never closed, because that would wait for threads.
    """
    import uvloop

    from lmi_core.plugins.early_engine import early_name, find_early_engine
    from lmi_core.plugins.early_workers import start_early

    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    from lmi_core.workers.prepared_workers import can_prepare

    engine = find_early_engine(models, options, os.environ)
    if engine is not None and (can_prepare() or not forks_only):
        runner.run(start_early(engine, early_name(models[0])))
    return runner

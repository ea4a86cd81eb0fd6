"""Display of progress: a bar below the log on a terminal, otherwise a log line at each stage and every few seconds."""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.logs.logs import terminal_thread, with_fields

logger = logging.getLogger(__name__)

LOG_SECONDS = 5.0
LOOK_SECONDS = 0.2  # between checks for a new stage
BAR_WIDTH = 20
FULL, EMPTY = "━", "─"


@contextmanager
def show_progress(loading: Mapping[str, LoadingProgress]) -> Iterator[None]:
    """Show the progress of these models, by name, until the body ends. The running event loop writes the log lines."""
    if terminal_thread() is not None:
        with show_on_terminal(loading):
            yield
        return
    if not logger.isEnabledFor(logging.INFO):
        yield
        return
    logging_lines = asyncio.create_task(log_lines(loading))
    try:
        yield
    finally:
        logging_lines.cancel()


@contextmanager
def show_on_terminal(loading: Mapping[str, LoadingProgress]) -> Iterator[None]:
    """Keep a progress line below the log if it goes to a terminal, at any log level."""
    thread = terminal_thread()
    if thread is None:
        yield
        return
    thread.show(lambda: bar_line(loading, thread.columns - 1))
    try:
        yield
    finally:
        thread.show(None)


async def log_lines(loading: Mapping[str, LoadingProgress]) -> None:
    """Log the start of each loading stage, and its progress every few seconds."""
    now = asyncio.get_running_loop().time
    stages = dict.fromkeys(loading, "")
    logged = dict.fromkeys(loading, now())
    while True:
        for name, progress in loading.items():
            if progress.what and (progress.what != stages[name] or now() - logged[name] >= LOG_SECONDS):
                stages[name], logged[name] = progress.what, now()
                logger.info("model %s: %s", name, progress, extra=with_fields({"model": name}))
        await asyncio.sleep(LOOK_SECONDS)


def bar_line(loading: Mapping[str, LoadingProgress], columns: int) -> str:
    """Return the progress line for all loading models, at most `columns` long."""
    return " | ".join(_part(name, progress) for name, progress in loading.items() if progress.what)[:columns]


def _part(name: str, progress: LoadingProgress) -> str:
    share = progress.share
    if share is None:
        return f"{name}: {progress}"
    full = round(share * BAR_WIDTH)
    return f"{name}: {FULL * full}{EMPTY * (BAR_WIDTH - full)} {share:.0%} {progress}"

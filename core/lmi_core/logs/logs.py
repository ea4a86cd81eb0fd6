"""One log format for the server and its workers, written by a separate thread.

Logging never waits for the reader of standard error: otherwise, an unread pipe would block the process.
"""

import atexit
import logging

from lmi_core.logs.formats import TEXT_FORMAT, new_formatter
from lmi_core.logs.log_thread import LogThread

LOG_LEVEL_VARIABLE = "LMI_LOG_LEVEL"  # passes the server's level to workers


def configure_logging(level: str) -> None:
    """Log to standard error; `level` is a name such as `info`."""
    handler = BoundedHandler(LogThread())
    handler.setFormatter(new_formatter())
    logging.basicConfig(level=level.upper(), force=True, handlers=[handler])


def configure_logging_of_another_program(level: str) -> None:
    """Log to standard error from a process that another program may end at any time; each line has the process's name.

    Lines are written directly, because a thread might not get to run.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(new_formatter(TEXT_FORMAT.replace("%(name)s", "%(processName)s %(name)s")))
    logging.basicConfig(level=level.upper(), force=True, handlers=[handler])


class BoundedHandler(logging.Handler):
    """A handler that passes lines to a thread, and counts lines that do not fit in its bounded queue."""

    def __init__(self, thread: LogThread) -> None:
        super().__init__()
        self.thread = thread
        atexit.register(thread.flush)  # nothing else flushes after `logging.config.dictConfig`

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.thread.write(self.format(record))
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self.thread.flush()

    def close(self) -> None:
        # Flush but keep running: `logging.config.dictConfig`, which libraries call, closes handlers in use
        self.thread.flush()
        super().close()


def flush_log() -> None:
    """Write the rest of the log and remove the progress line; afterwards, standard error is free for other output."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, BoundedHandler):
            handler.thread.show(None)
        handler.flush()


def terminal_thread() -> LogThread | None:
    """Return the thread that writes the log to a terminal; None if the log goes elsewhere."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, BoundedHandler) and handler.thread.is_terminal:
            return handler.thread
    return None


def error_stream_of_children() -> int | None:
    """Return the descriptor for child processes' standard error: on a terminal, their lines go above the progress line.

    None means that they inherit this process's standard error.
    """
    thread = terminal_thread()
    return None if thread is None else thread.pipe()

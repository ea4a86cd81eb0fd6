"""The log of the server and its workers: one format of lines, text or JSON, written by a separate thread.

Logging never waits for the reader of standard error: otherwise, an unread pipe would block the process.
"""

import atexit
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

LOG_LEVEL_VARIABLE = "LMI_LOG_LEVEL"  # passes the server's level to workers
LOG_FORMAT_VARIABLE = "LMI_LOG_FORMAT"  # passes the server's log format to workers
MODEL_VARIABLE = "LMI_LOG_MODEL"  # passes the name of its model to a worker
JSON = "json"
TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
ACCESS_LOG = "lmi_handlers.access_log"  # the logger that writes one line per request
FIELDS = "fields"  # attribute of a record: its content as separate fields, for log collectors
CONTINUATION = "\n    "  # precedes each further line of a record, so that a client's newlines cannot forge a record
PLAIN = "\n\t"  # the unprintable characters that text may contain
MAX_LINES = 10_000  # waiting to be written
FLUSH_SECONDS = 1.0  # the longest wait for a flush, because the reader may be blocked
FRAME_SECONDS = 0.1  # between updates of the progress line
REASON = "nothing read standard error, or its disk was full"
CLEAR = "\r\x1b[2K"

log_model: ContextVar[str | None] = ContextVar("the model of a task's log lines", default=None)


def new_formatter(text_format: str = TEXT_FORMAT) -> logging.Formatter:
    """Return the formatter of this process and its server; `text_format` applies unless the server writes JSON."""
    return JsonFormatter() if os.environ.get(LOG_FORMAT_VARIABLE) == JSON else TextFormatter(text_format)


@contextmanager
def logging_of(model: str | None) -> Iterator[None]:
    """Name the model in the log lines of this task, and of tasks and workers that it starts."""
    before = log_model.set(model)
    try:
        yield
    finally:
        log_model.reset(before)


def log_environment() -> dict[str, str]:
    """Return the environment in which a worker names the model of this task in its log lines."""
    return {} if (model := log_model.get()) is None else {MODEL_VARIABLE: model}


def with_fields(fields: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Return the `extra` of a log call whose JSON has these members, too."""
    return {FIELDS: fields}


def lost_lines_message(count: int, reason: str) -> str:
    """Return the line that replaces lines that could not be written."""
    message = f"{count} lines were dropped, because {reason}"
    record = logging.LogRecord("log", logging.WARNING, "", 0, message, None, None)
    return new_formatter().format(record)


class ModelFormatter(logging.Formatter):
    """A formatter that finds the model of a record: that of the task or, in a worker, of the process."""

    def __init__(self, text_format: str | None = None) -> None:
        super().__init__(text_format)
        self._model = os.environ.get(MODEL_VARIABLE)

    @property
    def model(self) -> str | None:
        return log_model.get() or self._model


class TextFormatter(ModelFormatter):
    """A formatter for people. Records may contain a client's text: control characters are escaped, and only the first
    line of a record begins in the first column.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        if self.model is not None:
            record.message = f"model {self.model}: {record.message}"
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if text.isprintable():
            return text
        shown = (each if each.isprintable() or each in PLAIN else _escape(each) for each in text)
        return "".join(shown).replace("\n", CONTINUATION)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


class JsonFormatter(ModelFormatter):
    """A formatter that writes each record as one line of JSON, with escapes for all characters that are not
    printable.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if self.model is not None:
            line["model"] = self.model
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            text = orjson.dumps(line, default=str).decode()
        except TypeError:  # half of a surrogate pair, for example from a header that is not UTF-8
            return json.dumps(line, default=str)
        if text.isprintable():
            return text
        return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


class LogThread:
    """A bounded queue of lines for standard error, and the thread that writes them.

    If the queue or the disk is full, lines are dropped; a later line reports their number.
    """

    def __init__(self, stream: TextIO | None = None, max_lines: int = MAX_LINES) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._max_lines = max_lines
        self._written = threading.Condition()
        self._unwritten = 0
        self._dropped = 0
        self._reported = 0  # how many of them the last line reports, if it can be written
        self._status: Callable[[], str] | None = None
        self._shown = ""
        self._pipe: int | None = None
        self._failed = False  # the last write, which may have written part of a line
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    @property
    def is_terminal(self) -> bool:
        return self._stream is not None and not self._stream.closed and self._stream.isatty()

    @property
    def columns(self) -> int:
        """The width of the terminal."""
        with suppress(OSError, ValueError):
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        return 80

    def write(self, line: str) -> None:
        """Queue a line, without waiting."""
        with self._written:
            if self._unwritten >= self._max_lines:
                self._dropped += 1
                return
            self._unwritten += 1
        self._lines.put(line)

    def show(self, status: Callable[[], str] | None) -> None:
        """Show the result of `status` below the log from now on, several times a second; None ends this.

        `status` is called in this thread, and must return less than a line of the terminal.
        """
        self._status = status
        with self._written:
            self._unwritten += 1
        self._lines.put("")

    def pipe(self) -> int:
        """Return the descriptor of a pipe whose lines are written here, for standard error of child processes."""
        if self._pipe is None:
            reading, self._pipe = os.pipe()
            threading.Thread(target=self._relay, args=(reading,), name="log of children", daemon=True).start()
        return self._pipe

    def flush(self) -> None:
        """Wait until all lines are written, unless the reader is stuck."""
        with self._written:
            self._written.wait_for(lambda: self._unwritten == 0, FLUSH_SECONDS)

    def close(self) -> None:
        """Write the queued lines, and end the thread."""
        self._status = None
        self.flush()
        self._lines.put(None)

    def _relay(self, reading: int) -> None:
        with open(reading, encoding="utf-8", errors="replace") as stream:
            for line in stream:
                self.write(line.rstrip().rpartition("\r")[2])  # the last state of a progress bar

    def _run(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=FRAME_SECONDS if self._status is not None else None)
            except queue.Empty:
                self._write_out("")
                continue
            if line is None:
                return
            if not self._write_out(self._with_count(line)):
                self._count_lost(line)
            with self._written:
                self._unwritten -= 1
                self._written.notify_all()

    def _count_lost(self, line: str) -> None:
        with self._written:
            self._dropped += self._reported + bool(line)

    def _with_count(self, line: str) -> str:
        with self._written:
            self._reported, self._dropped = self._dropped, 0
        text = f"{line}\n" if line else ""
        return f"{text}{lost_lines_message(self._reported, REASON)}\n" if self._reported else text

    def _write_out(self, text: str) -> bool:
        """Append to the output; return False on failure."""
        status = self._status() if self._status is not None else ""
        if not text and status == self._shown:
            return True
        before = CLEAR if self._shown else "\n" * self._failed
        self._shown = status
        self._failed = True
        with suppress(OSError, ValueError):  # the reader has gone, the disk is full, or the stream is closed
            self._stream.write(f"{before}{text}{status}")
            self._stream.flush()
            self._failed = False
        return not self._failed


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

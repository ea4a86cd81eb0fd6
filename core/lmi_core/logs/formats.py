"""The forms of log lines: text for people, JSON for collectors."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import orjson

LOG_FORMAT_VARIABLE = "LMI_LOG_FORMAT"  # passes the server's log format to workers
MODEL_VARIABLE = "LMI_LOG_MODEL"  # passes the name of its model to a worker
JSON = "json"
TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
ACCESS_LOG = "lmi_handlers.access_log"  # the logger that writes one line per request
FIELDS = "fields"  # attribute of a record: its content as separate fields, for log collectors
CONTINUATION = "\n    "  # precedes each further line of a record, so that a client's newlines cannot forge a record
PLAIN = "\n\t"  # the unprintable characters that text may contain

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

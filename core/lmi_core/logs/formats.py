"""The forms of log lines: text for people, JSON for collectors."""

import logging
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

LOG_FORMAT_VARIABLE = "LMI_LOG_FORMAT"  # passes the server's form to workers
JSON = "json"
TEXT_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
ACCESS_LOG = "lmi_handlers.access_log"  # the logger of one line for each request
FIELDS = "fields"  # of a record: what it says in parts, for collectors


def new_formatter() -> logging.Formatter:
    """Return the formatter of this process and its server."""
    return JsonFormatter() if os.environ.get(LOG_FORMAT_VARIABLE) == JSON else logging.Formatter(TEXT_FORMAT)


def with_fields(fields: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Return the `extra` of a log call whose JSON has these members, too."""
    return {FIELDS: fields}


def lost_lines(count: int, reason: str) -> str:
    """Return the line that replaces lines that could not be written."""
    record = logging.LogRecord("log", logging.WARNING, "", 0, f"{count} lines were dropped, as {reason}", None, None)
    return new_formatter().format(record)


class JsonFormatter(logging.Formatter):
    """A formatter that writes each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        line |= getattr(record, FIELDS, {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()

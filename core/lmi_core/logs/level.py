"""The log level of the server and its workers, which may change while they run."""

import logging
import os
from typing import Protocol
from weakref import WeakSet

from lmi_core.errors import InvalidParameter
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE

# The names of levels in Python and Java.
LEVELS = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "fatal": "critical",
    "critical": "critical",
}


class Listener(Protocol):
    """Another process with a log."""

    def set_log_level(self, level: str) -> None: ...


LISTENERS: WeakSet[Listener] = WeakSet()


def change_log_level(asked: str) -> str:
    """Set the log level of this process and of all its current and later workers, and return its name.

    Raise InvalidParameter for an unknown level.
    """
    level = LEVELS.get(asked.strip().lower())
    if level is None:
        raise InvalidParameter(f"`level` must be one of {', '.join(LEVELS)}. Given: {asked}")
    logging.getLogger().setLevel(level.upper())
    os.environ[LOG_LEVEL_VARIABLE] = level
    for listener in list(LISTENERS):
        listener.set_log_level(level)
    return level


def apply_log_level(message: bytes) -> None:
    """Apply the log level that the parent process has sent."""
    words = message.decode(errors="replace").split()
    if words and words[-1] in LEVELS.values():
        logging.getLogger().setLevel(words[-1].upper())
        os.environ[LOG_LEVEL_VARIABLE] = words[-1]

"""The messages of the download process to its parent, as JSON lines."""

import logging
import sys
import time
from pathlib import Path
from typing import TextIO

import msgspec

REPORT_SECONDS = 0.2


class Begin(msgspec.Struct, tag="begin", frozen=True):
    """The start of a download, or of unpacking, with the number of `skipped` bytes in formats that are not needed."""

    total: int | None  # None: unknown
    done: int
    skipped: int
    folder: str
    unpacks: bool = False


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """The number of bytes downloaded so far."""

    done: int


class Note(msgspec.Struct, tag="note", frozen=True):
    """A log message at a level of `logging`."""

    text: str
    level: int


class Finished(msgspec.Struct, tag="finished", frozen=True):
    """The copy is complete."""

    folder: str


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The copy failed, for a reason written for people."""

    message: str


Message = Begin | Progress | Note | Finished | Failed


class Report:
    """A writer of messages, which limits the rate of progress messages."""

    def __init__(self, stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._last = 0.0

    def begin(self, total: int | None, done: int, skipped: int, folder: Path, *, unpacks: bool = False) -> None:
        self.write(Begin(total, done, skipped, str(folder), unpacks))

    def progress(self, done: int) -> None:
        now = time.monotonic()
        if now - self._last >= REPORT_SECONDS:
            self._last = now
            self.write(Progress(done))

    def note(self, text: str, level: int = logging.WARNING) -> None:
        self.write(Note(text, level))

    def write(self, message: Message) -> None:
        self._stream.write(msgspec.json.encode(message).decode() + "\n")
        self._stream.flush()


def read(line: bytes) -> Message:
    """Parse a line into a message."""
    message: Message = msgspec.json.decode(line, type=Message)
    return message

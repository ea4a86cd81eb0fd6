"""The messages between the download process and its parent."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from lmi_core.configuration.location import RemoteModel
from lmi_core.workers.messages import Started, encode

REPORT_SECONDS = 0.2


class Job(msgspec.Struct, frozen=True):
    """The copy to make."""

    model: RemoteModel
    downloads: str


class Begin(msgspec.Struct, tag=True, frozen=True):
    """The start of a download or of unpacking; `skipped` bytes are in files that are not needed."""

    total: int | None  # None: unknown
    done: int
    skipped: int
    folder: str
    unpacks: bool = False


class Progress(msgspec.Struct, tag=True, frozen=True):
    """The number of bytes downloaded so far."""

    done: int


class Note(msgspec.Struct, tag=True, frozen=True):
    """A log message at a level of `logging`."""

    text: str
    level: int


class Finished(msgspec.Struct, tag=True, frozen=True):
    """The copy is complete."""

    folder: str


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The copy failed, for a reason written for people."""

    message: str
    is_unreachable: bool = False


Message = Started | Begin | Progress | Note | Finished | Failed
decode = msgspec.msgpack.Decoder(Message).decode


class Report:
    """A sender of messages, which limits the rate of progress messages; any thread may use it."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
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
        with self._lock:
            self._send(encode(message))

"""Locks between processes that share a cache. The kernel frees them when their holder ends, in whatever way."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lmi_core.errors import ConfigurationError

POLL_SECONDS = 0.1

_held: dict[Path, int] = {}  # for as long as this process lives: its engines may read the files again at any time


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for the body; `on_wait` is called once where another process has it."""
    descriptor = _open(path)
    try:
        if not _take(descriptor, fcntl.LOCK_EX, path):
            on_wait()
            while not _take(descriptor, fcntl.LOCK_EX, path):
                time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def hold(path: Path) -> None:
    """Share the lock until this process ends."""
    if path in _held:
        return
    descriptor = _open(path)
    while not _take(descriptor, fcntl.LOCK_SH, path):
        time.sleep(POLL_SECONDS)
    _held[path] = descriptor


def release(path: Path) -> None:
    """Give back what `hold` took."""
    os.close(_held.pop(path))


@contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Whether no process holds the lock; none can take it within the body."""
    descriptor = _open(path)
    try:
        yield _take(descriptor, fcntl.LOCK_EX, path)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _take(descriptor: int, kind: int, path: Path) -> bool:
    with suppress(BlockingIOError):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be locked ({error.strerror}): set LMI_CACHE to a folder on a file system with locks"
            ) from None
        return True
    return False

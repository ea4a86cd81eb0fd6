"""Locks between processes that share a cache, released by the kernel when a holder ends in any way."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lmi_core.errors import ConfigurationError

_held: dict[Path, list[int]] = {}  # a descriptor for each holder
_changing = threading.RLock()


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock exclusively; call `on_wait` first if another process holds it."""
    descriptor = _open(path)
    try:
        if not _take(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, path):
            on_wait()
            _take(descriptor, fcntl.LOCK_EX, path)
        yield
    finally:
        os.close(descriptor)


def hold(path: Path) -> None:
    """Share the lock until every `hold` is released or this process ends."""
    descriptor = _open(path)
    _take(descriptor, fcntl.LOCK_SH, path)
    with _changing:
        _held.setdefault(path, []).append(descriptor)


def release(path: Path) -> None:
    """Release a shared lock once, after `hold`."""
    with _changing:
        os.close(_held[path].pop())
        if not _held[path]:
            del _held[path]


def held_locks() -> list[Path]:
    """Return the shared locks that this process holds."""
    with _changing:
        return list(_held)


@contextmanager
def try_exclusive(path: Path) -> Iterator[bool]:
    """Yield whether no process holds the lock; if so, no process can take it in the body."""
    descriptor = _open(path)
    try:
        yield _take(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, path)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _take(descriptor: int, kind: int, path: Path) -> bool:
    """Take the lock; without LOCK_NB, wait for it. Return False if another process holds it, with LOCK_NB."""
    try:
        fcntl.flock(descriptor, kind)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be locked ({error.strerror}): set LMI_CACHE to a folder on a file system with locks"
        ) from None
    return True

"""The copies that models use, which no process removes while they are used."""

from pathlib import Path

from lmi_core.remote import locks
from lmi_core.remote.copies import CURRENT, LOCK


class HeldCopies:
    """The copies that one model uses, by purpose."""

    def __init__(self) -> None:
        self._locks: dict[str, Path] = {}

    def keep(self, use: str, folder: Path) -> None:
        """Hold the copy of a folder, if it is held now, instead of the previous one for this purpose."""
        lock = _lock_of(folder)
        if lock is not None:
            locks.hold(lock)
        self.release(use)
        if lock is not None:
            self._locks[use] = lock

    def release(self, use: str) -> None:
        """Release the copy for this purpose, if any."""
        if (lock := self._locks.pop(use, None)) is not None:
            locks.release(lock)

    def release_all(self) -> None:
        for use in list(self._locks):
            self.release(use)


def is_copy(folder: Path) -> bool:
    """Return whether a fetched folder is a copy made here, not a snapshot of the hub."""
    return len(folder.parents) > 1 and (folder.parents[1] / CURRENT).exists()


def is_in_copy(folder: Path) -> bool:
    """Return whether a folder is a copy made here, or in one, so that its path contains the version."""
    return any(map(is_copy, (folder, *folder.parents)))


def hold(folder: Path) -> bool:
    """Keep a copy while this process lives; return False if it has just been removed. Ignore other folders."""
    if not is_copy(folder):
        return True
    lock = folder.parent.with_suffix(LOCK)
    locks.hold(lock)
    if folder.is_dir():
        return True
    locks.release(lock)
    return False


def release_copy(folder: Path) -> None:
    """Release a fetched copy; HeldCopies keep it. Ignore folders that are not copies."""
    if (lock := _lock_of(folder)) is not None:
        locks.release(lock)


def _lock_of(folder: Path) -> Path | None:
    """Return the held lock of the copy that contains a folder; None for other folders."""
    held = locks.held_locks()
    if not held:
        return None
    resolved = folder.resolve()
    return next((lock for lock in held if resolved.is_relative_to(lock.with_suffix("").resolve())), None)

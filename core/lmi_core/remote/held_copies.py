"""The copies on this host that models use, which no process removes while one does."""

from pathlib import Path

from lmi_core.remote import locks


class HeldCopies:
    """The copies that one model uses, by what it uses each for."""

    def __init__(self) -> None:
        self._locks: dict[str, Path] = {}

    def keep(self, use: str, folder: Path) -> None:
        """Keep the copy that a folder lies in, if somebody holds it now, in place of what was kept for this use."""
        lock = _lock_of(folder)
        if lock is not None:
            locks.hold(lock)
        self.let_go(use)
        if lock is not None:
            self._locks[use] = lock

    def let_go(self, use: str) -> None:
        """Keep no longer what was kept for this use, if anything."""
        if (lock := self._locks.pop(use, None)) is not None:
            locks.release(lock)

    def let_all_go(self) -> None:
        for use in list(self._locks):
            self.let_go(use)


def let_go(folder: Path) -> None:
    """Hold a copy no longer that was fetched; those who keep it have it still. Others than copies are left alone."""
    if (lock := _lock_of(folder)) is not None:
        locks.release(lock)


def _lock_of(folder: Path) -> Path | None:
    """Return the held lock of the copy that a folder lies in, as `Copies` has them; None for other folders."""
    held = locks.held_locks()
    if not held:
        return None
    resolved = folder.resolve()
    return next((lock for lock in held if resolved.is_relative_to(lock.with_suffix("").resolve())), None)

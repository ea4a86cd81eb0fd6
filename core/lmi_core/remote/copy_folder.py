"""The cache folder of one remote model, with versions of its copy, each complete or absent.

FOLDER/lock            held by the process that makes a copy
FOLDER/VERSION/NAME/   a copy
FOLDER/VERSION.new     a copy that is being made
FOLDER/VERSION.lock    held by the processes that serve it
FOLDER/current.json    the version that was made last, and what it contains
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lmi_core.remote import locks

CURRENT = "current.json"
MAX_NAME = 64  # characters of the model's name in that of the folder


def folder_name(name: str, wanted: str) -> str:
    """Return the name of a cache folder: the model's, and a digest of what distinguishes it from others."""
    digest = hashlib.sha256(wanted.encode(errors="surrogatepass")).hexdigest()[:16]
    written = re.sub(r"[^\w.-]", "_", name)
    return f"{written[:MAX_NAME]}-{digest}"


class CopyFolder:
    """The versions of one model's copy."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.lock = folder / "lock"
        self.partial = folder / "partial"  # what is being downloaded

    def copy(self, version: str) -> Path:
        """Return the path of a version's copy, which need not exist."""
        return self.folder / version / self.name

    def staging(self, version: str) -> Path:
        """Return the path where a version is made."""
        return self.folder / f"{version}.new"

    def hold(self, copy: Path) -> bool:
        """Keep the copy while this process lives; return False where it has just been removed."""
        lock = self._version_lock(copy.relative_to(self.folder).parts[0])
        locks.hold(lock)
        if copy.is_dir():
            return True
        locks.release(lock)
        return False

    def put_in_place(self, version: str) -> None:
        """Rename what was made of a version to its final name, once all of it is on the disk."""
        final, staging = self.folder / version, self.staging(version)
        if final.exists():  # damaged
            shutil.rmtree(final)
        _sync_folders(staging)
        staging.replace(final)

    def write_current(self, data: bytes, version: str) -> None:
        """Record the current version atomically, and remove what no process uses of the others."""
        written = self.folder / f"{CURRENT}.new"
        with written.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self.folder / CURRENT)
        _sync(self.folder)
        self._remove_others(version)

    def _remove_others(self, version: str) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)
        for path in self.folder.iterdir():
            if not path.is_dir() or path.name == version:
                continue
            lock = self._version_lock(path.name)
            with locks.unused(lock) as free:
                if free:
                    shutil.rmtree(path, ignore_errors=True)
                    lock.unlink(missing_ok=True)

    def _version_lock(self, version: str) -> Path:
        return self.folder / f"{version}.lock"


def are_whole(folder: Path, sizes: Iterable[tuple[str, int]]) -> bool:
    """Return whether every file exists below the folder with its size."""
    return all(file_size(folder / path) == size for path, size in sizes)


def file_size(path: Path) -> int | None:
    """Return a file's size, None where it does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return None


def _sync_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        _sync(Path(path))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

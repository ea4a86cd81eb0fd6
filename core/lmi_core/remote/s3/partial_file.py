"""Files downloaded in parts, in any order, by processes that may end at any time."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

DONE = b"\1"

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


@dataclass(frozen=True, slots=True)
class Part:
    """A range of bytes, with an exclusive `end`."""

    index: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class PartialFile:
    """A file `NAME.partial`, and beside it one that records which parts are on disk."""

    def __init__(self, path: Path, size: int, part_size: int) -> None:
        """Open or create the partial file of `path`, the name of the complete file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._partial_path, self._parts_path = _paths(path, part_size)
        self._parts = _parts(size, part_size)
        if not self._partial_path.exists():
            self._parts_path.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._partial_path, flags, 0o666)
        os.ftruncate(self._file, size)
        self._record = os.open(self._parts_path, flags, 0o666)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._file)
        os.close(self._record)

    def missing(self) -> list[Part]:
        """Return the parts that are not on disk yet."""
        return _not_in(os.pread(self._record, len(self._parts), 0), self._parts)

    def write(self, data: bytes, offset: int) -> None:
        while data:
            written = os.pwrite(self._file, data, offset)
            data, offset = data[written:], offset + written

    def finish(self, part: Part) -> None:
        """Record a part once it is synced to disk, so that the record holds even after a power failure."""
        _sync(self._file)
        os.pwrite(self._record, DONE, part.index)

    def complete(self) -> None:
        """Rename the file to its final name, once every part is there."""
        self._partial_path.replace(self._path)
        self._parts_path.unlink(missing_ok=True)


def missing_bytes(path: Path, size: int, part_size: int) -> int:
    """Return how many bytes are not on disk yet, without creating a file."""
    partial, record = _paths(path, part_size)
    if not partial.exists() or not record.exists():
        return size
    return sum(part.size for part in _not_in(record.read_bytes(), _parts(size, part_size)))


def _paths(path: Path, part_size: int) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}.partial"), path.with_name(f"{path.name}.parts-of-{part_size}")


def _parts(size: int, part_size: int) -> list[Part]:
    return [Part(i, start, min(start + part_size, size)) for i, start in enumerate(range(0, size, part_size))]


def _not_in(record: bytes, parts: list[Part]) -> list[Part]:
    return [part for part in parts if record[part.index : part.index + 1] != DONE]

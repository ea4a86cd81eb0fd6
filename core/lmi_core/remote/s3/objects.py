"""The objects below an S3 location and the paths of their files."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

import msgspec

from lmi_core.errors import ConfigurationError

MAX_NAME_BYTES = 255  # bytes in a file name, on common file systems


class StoredObject(msgspec.Struct, array_like=True, frozen=True):
    """An object in a listing; `path` is that of its file below the copy's folder."""

    path: str
    key: str
    size: int
    etag: str
    modified: str

    @property
    def identity(self) -> str:
        """An identifier of the object's content."""
        return _digest([self.key, str(self.size), self.etag, self.modified])


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a copy, by path."""

    objects: Sequence[StoredObject]

    @property
    def version(self) -> str:
        """An identifier of the listing, which changes with any object in it."""
        return _digest(f"{each.path}\n{each.identity}" for each in self.objects)


def file_path(key: str, folder: str) -> str:
    """Return a key's path below the copy's folder. Raise ConfigurationError if it would be outside."""
    path = key.removeprefix(folder)
    parts = path.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ConfigurationError(
            f"the key {key!r} is not a valid file path within the folder: rename or delete that object"
        )
    if any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise ConfigurationError(f"the key {key!r} is too long for a file's name: rename or delete that object")
    return path


def check_paths(objects: Iterable[StoredObject]) -> None:
    """Raise ConfigurationError if one object's path is also the folder of another."""
    paths = {each.path for each in objects}
    for path in paths:
        for parent in PurePosixPath(path).parents:
            if str(parent) in paths:
                raise ConfigurationError(
                    f"{parent} is both an object and the folder of {path}, which a file system cannot store: rename "
                    "or delete one"
                )


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]

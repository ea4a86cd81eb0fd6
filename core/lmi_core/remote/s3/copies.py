"""The copies of one S3 location on this host, each complete or absent.

LOCATION/lock               held by the process that downloads
LOCATION/partial/IDENTITY   objects that are being downloaded
LOCATION/VERSION/NAME/      a copy
LOCATION/VERSION.lock       held by the processes that serve it
LOCATION/current.json       the version that was downloaded last, and what it holds
"""

import hashlib
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from lmi_core.remote.location import RemoteModel, S3Location
from lmi_core.remote.s3 import locks
from lmi_core.remote.s3.objects import Listing, StoredObject

CURRENT = "current.json"


class _Current(msgspec.Struct):
    source: str  # explains the folder to people who find it in the cache
    version: str
    objects: list[StoredObject]


class Copies:
    """The cache folder of one location."""

    def __init__(self, model: RemoteModel, downloads: Path) -> None:
        """Open a location's folder below `downloads`. Raise ConfigurationError for an invalid URL."""
        self.source = model.source
        self.location = S3Location.parse(model.source)
        self.name = self.location.name
        kind = "everything" if model.everything else "weights"
        wanted = f"{kind}\n{self.location.bucket}\n{self.location.prefix}\n{self.location.folder}"
        name = re.sub(r"[^\w.-]", "_", self.name)[:64]
        digest = hashlib.sha256(wanted.encode()).hexdigest()[:16]
        self.folder = downloads / "s3" / f"{name}-{digest}"
        self.lock = self.folder / "lock"
        self.partial = self.folder / "partial"

    def copy(self, version: str) -> Path:
        """Return the path of a version's copy, which need not exist."""
        return self.folder / version / self.name

    def current(self) -> tuple[Path, Listing] | None:
        """Return the latest copy and its listing, or None if it is absent or damaged."""
        try:
            current = msgspec.json.decode((self.folder / CURRENT).read_bytes(), type=_Current)
        except (OSError, msgspec.DecodeError):
            return None
        copy, listing = self.copy(current.version), Listing(current.objects)
        return (copy, listing) if is_whole(copy, listing) else None

    def hold(self, copy: Path) -> bool:
        """Keep the copy while this process lives; return False where it has just been removed."""
        lock = self._version_lock(copy.parent.name)
        locks.hold(lock)
        if copy.is_dir():
            return True
        locks.release(lock)
        return False

    def install(self, listing: Listing) -> Path:
        """Build a copy from `partial` and unchanged files of the current copy, while the caller holds `lock`."""
        copy = self.copy(listing.version)
        staging = self.folder / f"{listing.version}.new"
        reusable = self._reusable()
        for each in listing.objects:
            target = staging / self.name / each.path
            target.parent.mkdir(parents=True, exist_ok=True)
            downloaded = self.partial / each.identity
            if downloaded.exists():
                downloaded.replace(target)
            elif not target.exists():
                _link(reusable[each.path, each.identity], target)
        if copy.parent.exists():  # damaged
            shutil.rmtree(copy.parent)
        _sync_folders(staging)
        staging.replace(copy.parent)
        self.set_current(listing)
        return copy

    def set_current(self, listing: Listing) -> None:
        """Set the current version atomically, and remove copies and partial files that are not in use."""
        data = msgspec.json.encode(_Current(self.source, listing.version, list(listing.objects)))
        written = self.folder / f"{CURRENT}.new"
        with written.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self.folder / CURRENT)
        _sync(self.folder)
        self._remove_others(listing.version)

    def missing(self, listing: Listing) -> list[StoredObject]:
        """Return the objects that are neither in the current copy nor completely downloaded."""
        reusable = self._reusable()
        staged = self.folder / f"{listing.version}.new" / self.name
        return [
            each
            for each in listing.objects
            if (each.path, each.identity) not in reusable
            and each.size not in (_size(staged / each.path), _size(self.partial / each.identity))
        ]

    def remove_stale(self, listing: Listing) -> None:
        """Remove partial downloads of objects that have changed."""
        wanted = {each.identity for each in listing.objects}
        for path in self.partial.glob("*"):
            if path.name.partition(".")[0] not in wanted:
                path.unlink()

    def _reusable(self) -> dict[tuple[str, str], Path]:
        current = self.current()
        if current is None:
            return {}
        copy, listing = current
        return {(each.path, each.identity): copy / each.path for each in listing.objects}

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


def is_whole(copy: Path, listing: Listing) -> bool:
    """Return whether every listed file exists with its size."""
    return all(_size(copy / each.path) == each.size for each in listing.objects)


def _size(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_size
    return None


def _link(source: Path, target: Path) -> None:
    """Hard-link an unchanged file of the previous copy, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        unfinished = target.with_name(target.name[:200] + ".copying")
        shutil.copy2(source, unfinished)
        unfinished.replace(target)


def _sync_folders(folder: Path) -> None:
    for path, _, _ in os.walk(folder):
        _sync(Path(path))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The copies of one S3 location on this host, each complete or absent.

Beside what `copy_folder.py` says: FOLDER/partial/IDENTITY are objects that are being downloaded.
"""

import os
import shutil
from pathlib import Path

import msgspec

from lmi_core.configuration.location import RemoteModel, S3Location
from lmi_core.remote.copy_folder import CURRENT, CopyFolder, are_whole, file_size, folder_name
from lmi_core.remote.s3.objects import Listing, StoredObject


class _Current(msgspec.Struct):
    source: str  # explains the folder to people who find it in the cache
    version: str
    objects: list[StoredObject]


class Copies(CopyFolder):
    """The cache folder of one location."""

    def __init__(self, model: RemoteModel, downloads: Path) -> None:
        """Open a location's folder below `downloads`. Raise ConfigurationError for an invalid URL."""
        self.source = model.source
        self.location = S3Location.parse(model.source)
        kind = "everything" if model.everything else "weights"
        wanted = f"{kind}\n{self.location.bucket}\n{self.location.prefix}\n{self.location.folder}"
        super().__init__(downloads / "s3" / folder_name(self.location.name, wanted), self.location.name)

    def current(self) -> tuple[Path, Listing] | None:
        """Return the latest copy and its listing, or None if it is absent or damaged."""
        try:
            current = msgspec.json.decode((self.folder / CURRENT).read_bytes(), type=_Current)
        except (OSError, msgspec.DecodeError):
            return None
        copy, listing = self.copy(current.version), Listing(current.objects)
        return (copy, listing) if is_whole(copy, listing) else None

    def install(self, listing: Listing) -> Path:
        """Build a copy from `partial` and unchanged files of the current copy, while the caller holds `lock`."""
        reusable = self._reusable()
        for each in listing.objects:
            target = self.staging(listing.version) / self.name / each.path
            target.parent.mkdir(parents=True, exist_ok=True)
            downloaded = self.partial / each.identity
            if downloaded.exists():
                downloaded.replace(target)
            elif not target.exists():
                _link(reusable[each.path, each.identity], target)
        self.put_in_place(listing.version)
        self.set_current(listing)
        return self.copy(listing.version)

    def set_current(self, listing: Listing) -> None:
        """Set the current version atomically, and remove copies and partial files that are not in use."""
        current = _Current(self.source, listing.version, list(listing.objects))
        self.write_current(msgspec.json.encode(current), listing.version)

    def missing(self, listing: Listing) -> list[StoredObject]:
        """Return the objects that are neither in the current copy nor completely downloaded."""
        reusable = self._reusable()
        staged = self.staging(listing.version) / self.name
        return [
            each
            for each in listing.objects
            if (each.path, each.identity) not in reusable
            and each.size not in (file_size(staged / each.path), file_size(self.partial / each.identity))
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


def is_whole(copy: Path, listing: Listing) -> bool:
    """Return whether every listed file exists with its size."""
    return are_whole(copy, ((each.path, each.size) for each in listing.objects))


def _link(source: Path, target: Path) -> None:
    """Hard-link an unchanged file of the previous copy, or copy it where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        unfinished = target.with_name(target.name[:200] + ".copying")
        shutil.copy2(source, unfinished)
        unfinished.replace(target)

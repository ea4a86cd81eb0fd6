"""The copies of one archive on this host, each unpacked whole or absent.

Beside what `copy_folder.py` says: FOLDER/partial/ contains the archive itself, until it is unpacked.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from lmi_core.configuration.location import RemoteModel, archive_name, is_web
from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.limits import Limits
from lmi_core.remote.archives.unpacking import model_root, unpack
from lmi_core.remote.copy_folder import CURRENT, CopyFolder, are_whole, file_size, folder_name
from lmi_core.remote.errors import ChangedMeanwhile
from lmi_core.remote.report import Report

UNPACKED = ".unpacked"
# Query fields that sign a URL for some time, of S3, Google, Azure and CloudFront: each names the same archive.
SIGNING = re.compile(
    r"x-(amz|goog)-.*|awsaccesskeyid|googleaccessid|signature|expires|key-pair-id|policy|token"
    r"|s[eiprtv]|s(ig|ip|pr|aoid|uoid|cid|dd)|sk([estv]|oid|tid)",  # Azure's
    re.I,
)


class _Current(msgspec.Struct):
    source: str  # explains the folder to people who find it in the cache
    version: str
    files: list[tuple[str, int]]  # each path with its size


class ArchiveCopies(CopyFolder):
    """The cache folder of one archive."""

    def __init__(self, model: RemoteModel, downloads: Path) -> None:
        name = archive_name(model.source)
        super().__init__(downloads / "archives" / folder_name(name, _lasting(model.source)), _as_folder(name))
        self._model = model

    def current(self) -> tuple[Path, str] | None:
        """Return the latest copy and its version, or None if it is absent or damaged."""
        try:
            current = msgspec.json.decode((self.folder / CURRENT).read_bytes(), type=_Current)
        except (OSError, msgspec.DecodeError):
            return None
        copy = self.copy(current.version)
        return (copy, current.version) if are_whole(copy, current.files) else None

    def current_if(self, version: str) -> Path | None:
        """Return the latest copy if it has this version."""
        current = self.current()
        return current[0] if current is not None and current[1] == version else None

    def size(self) -> int:
        """Return what the files of the latest copy take, in bytes."""
        current = msgspec.json.decode((self.folder / CURRENT).read_bytes(), type=_Current)
        return sum(size for _, size in current.files)

    def install(self, archive: Path, version: str, limits: Limits, report: Report) -> Path:
        """Unpack an archive, while the caller holds `lock`, and return the copy.

        Raise ConfigurationError where it cannot be unpacked, or ChangedMeanwhile, with nothing left behind.
        """
        staging = self.staging(version)
        try:
            shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
            self._unpack(archive, staging, limits, report)
            self.put_in_place(version)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        copy = self.copy(version)
        current = _Current(str(self._model), version, sorted(_files(copy)))
        self.write_current(msgspec.json.encode(current), version)
        return copy

    def _unpack(self, archive: Path, staging: Path, limits: Limits, report: Report) -> None:
        with archive.open("rb") as file:
            before = os.fstat(file.fileno())
            report.begin(before.st_size, 0, 0, self.folder, unpacks=True)
            try:
                unpack(file, staging / UNPACKED, limits, report.progress)
            except ConfigurationError:
                _check_unchanged(archive, before)  # which tells why
                raise
            _check_unchanged(archive, before)
        model_root(staging / UNPACKED).replace(staging / self.name)
        shutil.rmtree(staging / UNPACKED, ignore_errors=True)


def version_of(*identity: object) -> str:
    """Return a name for a version of an archive, which changes with any of these."""
    return hashlib.sha256("\n".join(map(str, identity)).encode(errors="surrogatepass")).hexdigest()[:32]


def _check_unchanged(archive: Path, before: os.stat_result) -> None:
    now = archive.stat()
    if (now.st_mtime_ns, now.st_size, now.st_ino) != (before.st_mtime_ns, before.st_size, before.st_ino):
        raise ChangedMeanwhile(str(archive))


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    for path, _, names in os.walk(folder):
        for name in names:
            file = Path(path, name)
            yield str(file.relative_to(folder)), file_size(file) or 0


def _lasting(source: str) -> str:
    """Return a URL without what changes where it is signed anew."""
    if not is_web(source):
        return source
    parts = urlsplit(source)
    query = [(name, value) for name, value in parse_qsl(parts.query, True) if not SIGNING.fullmatch(name)]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query), fragment="").geturl()


def _as_folder(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).strip(".")[:64] or "model"

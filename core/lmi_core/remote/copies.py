"""The copies of one remote model on this host, each complete or absent.

FOLDER/lock            held by the process that makes a copy
FOLDER/partial/        downloads that are not finished: objects of S3 or the server's files by identity, or an archive
FOLDER/VERSION/NAME/   a copy
FOLDER/VERSION.new     a copy that is being made
FOLDER/VERSION.lock    held by the processes that serve it
FOLDER/current.json    the version that was made last, and its files
"""

import hashlib
import os
import re
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from lmi_core.configuration.location import RemoteModel, S3Location, archive_name, is_web
from lmi_core.remote import locks

CURRENT = "current.json"
LOCK = ".lock"
FROM_SERVER = "servers"  # folder of the copies of server folders
MAX_NAME = 64  # characters of the model's name in the folder's name
# Query parameters of presigned URLs of S3, Google, Azure and CloudFront: they do not change which archive is meant.
SIGNING = re.compile(
    r"x-(amz|goog)-.*|awsaccesskeyid|googleaccessid|signature|expires|key-pair-id|policy|token"
    r"|s[eiprtv]|s(ig|ip|pr|aoid|uoid|cid|dd)|sk([estv]|oid|tid)",  # Azure's
    re.I,
)
SNAPSHOT = re.compile(r"(?<=/snapshots/)[0-9a-f]{40}/")  # in the hub's cache: commits share a copy of an unchanged file


class CopiedFile(msgspec.Struct, array_like=True, frozen=True):
    """A file, by its path below the copy's folder."""

    path: str
    size: int
    identity: str = ""  # identifies the original: an object in S3, a file of the server, or a blob of the hub


class Contents(msgspec.Struct, frozen=True):
    """A version of a copy."""

    source: str  # tells people who find the folder in the cache where it comes from
    version: str
    files: Sequence[CopiedFile]


class ServerFolder(NamedTuple):
    """A folder on the host of the server, to be copied by a worker on another node."""

    host: str
    path: str

    def __str__(self) -> str:
        return f"{self.host}:{self.path}"


class Copies:
    """The cache folder of one model in S3, in an archive or on the server's host, with the versions of its copy."""

    def __init__(self, model: RemoteModel | ServerFolder, downloads: Path) -> None:
        """Name a model's folder below `downloads`. Raise ConfigurationError for an invalid URL."""
        self._source = str(model)
        if isinstance(model, ServerFolder):
            kind, name, wanted = FROM_SERVER, Path(model.path).name, str(model)
            self._name = name
        elif model.is_archive:
            kind, name = "archives", archive_name(model.source)
            wanted = SNAPSHOT.sub("", _without_signature(model.source))
            self._name = re.sub(r"[^\w.-]", "_", name).strip(".")[:MAX_NAME] or "model"
        else:
            location = S3Location.parse(model.source)
            files = "everything" if model.everything else "weights"
            kind, name = "s3", location.name
            wanted = f"{files}\n{location.bucket}\n{location.prefix}\n{location.folder}"
            self._name = name
        digest = hashlib.sha256(wanted.encode(errors="surrogatepass")).hexdigest()[:16]
        written = re.sub(r"[^\w.-]", "_", name)
        self.folder = downloads / kind / f"{written[:MAX_NAME]}-{digest}"
        self.lock = self.folder / "lock"
        self.partial = self.folder / "partial"

    def copy(self, version: str) -> Path:
        """Return the path of a version's copy, which need not exist."""
        return self.folder / version / self._name

    def staging_path(self, version: str) -> Path:
        """Return the path where a version's copy is made."""
        return self._staging(version) / self._name

    def current(self) -> tuple[Path, Contents] | None:
        """Return the latest copy and its contents, or None if it is absent or damaged."""
        try:
            contents = msgspec.json.decode((self.folder / CURRENT).read_bytes(), type=Contents)
        except (OSError, msgspec.DecodeError):
            return None
        copy = self.copy(contents.version)
        return (copy, contents) if are_whole(copy, contents.files) else None

    def current_if(self, version: str) -> Path | None:
        """Return the latest copy if it has this version, otherwise None."""
        current = self.current()
        return current[0] if current is not None and current[1].version == version else None

    def publish(self, version: str, files: Sequence[CopiedFile] | None = None) -> Path:
        """Make the staged version the current one, atomically, and return its copy; `files` defaults to all files
        there.

        The caller holds `lock`. Copies that no process uses are removed.
        """
        final = self.folder / version
        if final.exists():  # a damaged copy
            shutil.rmtree(final)
        staging = self._staging(version)
        for path, _, _ in os.walk(staging):
            _sync(Path(path))
        staging.replace(final)
        if files is None:
            copy = self.copy(version)
            paths = sorted(path for path in copy.rglob("*") if path.is_file())
            files = [CopiedFile(str(path.relative_to(copy)), path.stat().st_size) for path in paths]
        return self.set_current(version, files)

    def set_current(self, version: str, files: Sequence[CopiedFile]) -> Path:
        """Record the current version atomically, remove others that no process uses, and return its copy."""
        written = self.folder / f"{CURRENT}.new"
        with written.open("wb") as file:
            file.write(msgspec.json.encode(Contents(self._source, version, files)))
            file.flush()
            os.fsync(file.fileno())
        written.replace(self.folder / CURRENT)
        _sync(self.folder)
        self._remove_others(version)
        return self.copy(version)

    def remove(self) -> None:
        """Remove every copy, unless a process uses one; the caller holds `lock`."""
        self._remove_others("")
        if not any(path.is_dir() for path in self.folder.iterdir()):
            (self.folder / CURRENT).unlink(missing_ok=True)

    def discard(self, version: str) -> None:
        """Remove the staged files of a version."""
        shutil.rmtree(self._staging(version), ignore_errors=True)

    def make_room(self, version: str) -> None:
        """Remove copies that no process uses, except the current one, before another version is made."""
        current = self.current()
        kept = [self.partial.name, self._staging(version).name, *([current[1].version] if current else [])]
        self._remove_unused(kept)

    def _remove_others(self, version: str) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)
        self._remove_unused([version])

    def _remove_unused(self, kept: Collection[str]) -> None:
        for path in self.folder.iterdir():
            if not path.is_dir() or path.name in kept:
                continue
            lock = path.with_name(path.name + LOCK)
            with locks.try_exclusive(lock) as free:
                if free:
                    shutil.rmtree(path, ignore_errors=True)
                    lock.unlink(missing_ok=True)

    def _staging(self, version: str) -> Path:
        return self.folder / f"{version}.new"


def server_folders(host: str, downloads: Path) -> list[str]:
    """Return the folders of a server's host that have copies here."""
    found = list[str]()
    for path in (downloads / FROM_SERVER).glob(f"*/{CURRENT}"):
        with suppress(OSError, msgspec.DecodeError):
            found.append(msgspec.json.decode(path.read_bytes(), type=Contents).source)
    start = str(ServerFolder(host, ""))
    return [each.removeprefix(start) for each in found if each.startswith(start)]


def version_of(*identity: object) -> str:
    """Return a name for a version, which changes if any of these facts does."""
    return hashlib.sha256("\n".join(map(str, identity)).encode(errors="surrogatepass")).hexdigest()[:32]


def are_whole(folder: Path, files: Sequence[CopiedFile]) -> bool:
    """Return whether every file exists below the folder with its size."""
    return all(file_size(folder / each.path) == each.size for each in files)


def file_size(path: Path) -> int | None:
    """Return a file's size; None if it does not exist."""
    with suppress(OSError):
        return path.stat().st_size
    return None


def _without_signature(source: str) -> str:
    """Return a URL without user and signature."""
    if not is_web(source):
        return source
    parts = urlsplit(source)
    query = [(name, value) for name, value in parse_qsl(parts.query, True) if not SIGNING.fullmatch(name)]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query), fragment="").geturl()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

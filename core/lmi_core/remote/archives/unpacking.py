"""Unpacking of an archive into a new folder, bounded in size and number."""

import os
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.limits import Limits
from lmi_core.remote.archives.member import Member, damaged
from lmi_core.remote.archives.names import MemberPaths
from lmi_core.remote.archives.tar_archive import tar_members
from lmi_core.remote.archives.zip_archive import zip_members

GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
TAR, TAR_AT = b"ustar", 257
START = 512  # the bytes from which a format is recognized
OTHER_FORMATS = {
    b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"7z\xbc\xaf": "7-Zip", b"Rar!": "RAR", b"\x28\xb5\x2f\xfd": "Zstandard"
}  # fmt: skip
FORMATS = "pack it as .zip, .tar.gz or .tar"
MAC_FOLDER = "__MACOSX"  # files that macOS adds to zip archives
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Format(Enum):
    """The format of an archive."""

    ZIP = "zip"
    TAR_GZ = "tar.gz"
    TAR = "tar"


def recognise(start: bytes) -> Format:
    """Return the format of a file that starts with these bytes. Raise ConfigurationError if it is not an archive."""
    if start.startswith(ZIP):
        return Format.ZIP
    if start.startswith(GZIP):
        return Format.TAR_GZ
    if start[TAR_AT:].startswith(TAR):
        return Format.TAR
    other = next((name for magic, name in OTHER_FORMATS.items() if start.startswith(magic)), None)
    if other is not None:
        raise ConfigurationError(f"the archive is packed with {other}, which is not supported: {FORMATS}")
    if start.lstrip()[:1] == b"<":
        raise ConfigurationError(
            "this is a web page and not an archive: check the URL, and whether it asks people to log in"
        )
    raise ConfigurationError(f"this is not an archive: {FORMATS}")


def unpack(archive: BinaryIO, folder: Path, limits: Limits, report: Callable[[int], None]) -> None:
    """Write an archive's files below a new folder, reporting how many of the archive's bytes were read.

    Raise ConfigurationError if the archive is damaged or too large, or contains anything except files and folders below
    that folder; files written until then are left there. Nested archives are not unpacked.
    """
    archive_size = os.fstat(archive.fileno()).st_size
    folder.mkdir(parents=True)
    paths, size, files = MemberPaths(), 0, 0
    for member in _members(archive):
        path = paths.add(member.name, is_folder=member.content is None)
        size, files = size + member.size, files + 1
        limits.check(size, max(files, len(paths)), archive_size)
        if path.partition("/")[0] == MAC_FOLDER:
            continue
        if member.content is None:
            (folder / path).mkdir(parents=True, exist_ok=True)
            continue
        for _ in _write(folder / path, member.size, member.content):
            report(min(archive.tell(), archive_size))
    if files == 0:
        raise ConfigurationError("the archive is empty")


def _members(archive: BinaryIO) -> Iterator[Member]:
    archive.seek(0)
    found = recognise(archive.read(START))
    archive.seek(0)
    if found is Format.ZIP:
        return zip_members(archive)
    return tar_members(archive, compressed=found is Format.TAR_GZ)


def _write(path: Path, size: int, content: Iterator[bytes]) -> Iterator[None]:
    """Write a file, yielding after each chunk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    left = size
    with open(os.open(path, NEW_FILE, 0o666), "wb") as file:
        for data in content:
            left -= len(data)
            if left < 0:
                break
            file.write(data)
            yield
        if left != 0:
            raise damaged("a file does not have its declared size")
        file.flush()
        os.fsync(file.fileno())


def model_root(folder: Path) -> Path:
    """Return the folder of the model: if an archive contains only one folder, that folder, as in DJLServing."""
    visible = [child for child in folder.iterdir() if not child.name.startswith(".")]
    return visible[0] if len(visible) == 1 and visible[0].is_dir() else folder

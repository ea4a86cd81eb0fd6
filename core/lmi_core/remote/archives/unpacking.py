"""Unpacking of an archive into a new folder, with limits on the size and number of files."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from unicodedata import normalize

from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.limits import Limits
from lmi_core.remote.archives.member import Member, damage_error
from lmi_core.remote.archives.names import member_path, name_error, quote
from lmi_core.remote.archives.tar_archive import tar_members
from lmi_core.remote.archives.zip_archive import zip_members

GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
TAR, TAR_AT = b"ustar", 257
START = 512  # the bytes from which a format is recognized
FORMATS = "pack it as .zip, .tar.gz or .tar"
MAC_FOLDER = "__MACOSX"  # files that macOS adds to zip archives
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def recognise(start: bytes) -> Callable[[BinaryIO], Iterator[Member]]:
    """Return the reader of an archive that starts with these bytes.

    Raise ConfigurationError if the format is not supported.
    """
    if start.startswith(ZIP):
        return zip_members
    if start.startswith(GZIP):
        return partial(tar_members, compressed=True)
    if start[TAR_AT:].startswith(TAR):
        return partial(tar_members, compressed=False)
    if start.lstrip()[:1] == b"<":
        raise ConfigurationError(
            "this is a web page and not an archive: check the URL, and whether it asks people to log in"
        )
    raise ConfigurationError(f"this is not a supported archive: {FORMATS}")


def unpack(archive: BinaryIO, folder: Path, limits: Limits, report: Callable[[int], None]) -> None:
    """Write an archive's files below a new folder, reporting how many of the archive's bytes were read.

    Raise ConfigurationError if the archive is damaged or too large, or contains anything except files and folders below
    that folder; files written until then are left there. Nested archives are not unpacked.
    """
    archive_size = os.fstat(archive.fileno()).st_size
    folder.mkdir(parents=True)
    spelled, size, files = dict[str, PurePosixPath](), 0, 0
    members = recognise(archive.read(START))
    archive.seek(0)
    for member in members(archive):
        path = member_path(member.name, is_folder=member.content is None)
        for each in (path, *path.parents):  # folders need no entries of their own
            if (known := spelled.setdefault(normalize("NFC", str(each)).casefold(), each)) != each:
                raise name_error(member.name, f"and {quote(str(known))} differ in case or accents alone")
        size, files = size + member.size, files + 1
        limits.check(size, max(files, len(spelled) - 1), archive_size)
        if path.parts[:1] == (MAC_FOLDER,):
            continue
        try:
            if member.content is None:
                (folder / path).mkdir(parents=True, exist_ok=True)
                continue
            for _ in _write(folder / path, member.size, member.content):
                report(min(archive.tell(), archive_size))
        except (FileExistsError, NotADirectoryError):
            raise name_error(member.name, "is in it twice, or is a file and a folder") from None
    if files == 0:
        raise ConfigurationError("the archive is empty")


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
            raise damage_error("a file does not have its declared size")
        file.flush()
        os.fsync(file.fileno())


def model_root(folder: Path) -> Path:
    """Return the folder of the model: if an archive contains only one folder, that folder, as in DJLServing."""
    visible = [child for child in folder.iterdir() if not child.name.startswith(".")]
    return visible[0] if len(visible) == 1 and visible[0].is_dir() else folder

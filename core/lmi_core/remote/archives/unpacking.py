"""Unpacking of an archive into a new folder, with limits on the size and number of files, so that no small archive
fills a disk.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Self
from unicodedata import normalize

from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import readable
from lmi_core.remote.archives.formats import tar_members, zip_members
from lmi_core.remote.archives.member import Member, damage_error, member_path, name_error, quote

GZIP = b"\x1f\x8b"
ZIP = (b"PK\x03\x04", b"PK\x05\x06")
TAR, TAR_AT = b"ustar", 257
START = 512  # the bytes from which a format is recognized
FORMATS = "pack it as .zip, .tar.gz or .tar"
MAC_FOLDER = "__MACOSX"  # files that macOS adds to zip archives
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
BYTES_VARIABLE = "LMI_MAX_UNPACKED_BYTES"
FILES_VARIABLE = "LMI_MAX_UNPACKED_FILES"
DEFAULT_BYTES = 10**12
DEFAULT_FILES = 100_000
MAX_RATIO = 100  # weights barely compress
FREE_BYTES = 2**30  # any archive may unpack to this size, for example one with weights of zeros in a test


@dataclass(frozen=True, slots=True)
class Limits:
    """The maximum size and number of the files of one archive."""

    max_bytes: int = DEFAULT_BYTES
    max_files: int = DEFAULT_FILES
    max_ratio: int | None = MAX_RATIO  # of the unpacked to the packed size; None if an operator set a size

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """Read the limits from the environment. Raise ConfigurationError if one is not a number."""
        size, files = _number(environment, BYTES_VARIABLE), _number(environment, FILES_VARIABLE)
        return cls(size or DEFAULT_BYTES, files or DEFAULT_FILES, None if size else MAX_RATIO)

    def check(self, size: int, files: int, archive_size: int) -> None:
        """Raise ConfigurationError if these files are too large or too many."""
        if files > self.max_files:
            raise ConfigurationError(
                f"the archive contains more than {FILES_VARIABLE}={self.max_files} files and folders: set it higher if "
                "the archive is yours"
            )
        if size > self.max_bytes:
            raise ConfigurationError(
                f"the archive unpacks to more than {BYTES_VARIABLE}={self.max_bytes} ({readable(self.max_bytes)}): set "
                "it higher if the archive is yours"
            )
        if self.max_ratio is not None and size > max(FREE_BYTES, self.max_ratio * archive_size):
            raise ConfigurationError(
                f"the archive of {readable(archive_size)} unpacks to more than {self.max_ratio} times its size, "
                f"which only attacks do: set {BYTES_VARIABLE} to a number of bytes if the archive is yours"
            )


def _number(environment: Mapping[str, str], variable: str) -> int | None:
    text = environment.get(variable, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18 and int(text) > 0):
        raise ConfigurationError(f"environment {variable} must be an integer greater than 0. Given: {text}")
    return int(text)


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

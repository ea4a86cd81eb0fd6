"""Reading of zip archives, with bounded memory."""

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, BinaryIO, cast

from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.member import OTHER_KIND, Member, convert_errors, refuse_kind

CHUNK = 1 << 20
MAX_DIRECTORY = 64 << 20  # bytes of the central directory, which is read at once
ENCRYPTED = 0x1
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods unpack with unbounded memory
DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, ValueError, RuntimeError, OverflowError
)  # fmt: skip


def zip_members(archive: BinaryIO) -> Iterator[Member]:
    """Yield the members. Raise ConfigurationError for a member of another kind, or a damaged archive."""
    with convert_errors(DAMAGE):
        opened = zipfile.ZipFile(cast("IO[bytes]", _Guarded(archive)))
    for member in opened.infolist():
        yield _member(opened, member)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Member:
    name = member.orig_filename  # `filename` is cut at the first null byte
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise refuse_kind(name, OTHER_KIND)
    if member.flag_bits & ENCRYPTED:
        raise refuse_kind(name, "encrypted", "pack it without a password")
    if member.is_dir():
        return Member(name, 0, None)
    if member.compress_type not in METHODS:
        raise refuse_kind(name, "compressed by a rare method", "pack it with deflate, as `zip` does")
    return Member(name, member.file_size, _content(archive, member))


def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with convert_errors(DAMAGE), archive.open(member) as file:
        while data := file.read(CHUNK):
            yield data


class _Guarded(io.RawIOBase):
    """A file that refuses to read overly long lists of members."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(position, whence)

    def read(self, size: int = -1) -> bytes:
        if size > MAX_DIRECTORY:
            raise ConfigurationError(
                f"the archive cannot be unpacked: its list of members takes more than {MAX_DIRECTORY} bytes"
            )
        return self._file.read(size)

"""Reading of tar archives, compressed by gzip or not, and of zip archives, with bounded memory.

Tar archives are read once, from start to end. Only files and folders are read; tarfile's `data` filter also allows
links within the archive.
"""

import gzip
import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, BinaryIO, cast

from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.member import OTHER_KIND, Member, convert_errors, refuse_kind

CHUNK = 1 << 20
MAX_HEADER = 1 << 20  # bytes between two members: long names and attributes
MAX_TRAILER = 4 << 20  # bytes after the last member, which fill the last record of a tape
END = bytes(tarfile.BLOCKSIZE)
DEREFERENCE = "pack the files themselves, as `tar -h --hard-dereference` does"
TAR_DAMAGE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, RecursionError, ValueError, OverflowError)
MAX_DIRECTORY = 64 << 20  # bytes of the central directory, which is read at once
ENCRYPTED = 0x1
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods unpack with unbounded memory
ZIP_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, ValueError, RuntimeError, OverflowError
)  # fmt: skip


def tar_members(archive: BinaryIO, *, compressed: bool) -> Iterator[Member]:
    """Yield the members. Raise ConfigurationError for a member of another kind, or a damaged archive."""
    content = gzip.GzipFile(fileobj=archive) if compressed else archive
    stream = _TarStream(cast("IO[bytes]", content))
    with (
        convert_errors(TAR_DAMAGE),
        tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:", encoding="utf-8") as tar,
    ):
        while (member := tar.next()) is not None:
            yield _tar_member(member, stream)
            stream.skip_to(tar.offset)
            cast("Any", tar).members.clear()  # otherwise, they accumulate
        stream.check_end()


def _tar_member(member: tarfile.TarInfo, stream: "_TarStream") -> Member:
    if member.isdir():
        return Member(member.name, 0, None)
    if member.sparse is not None:
        raise refuse_kind(member.name, "a file with holes", "pack it without --sparse")
    if not member.isreg():
        raise refuse_kind(member.name, OTHER_KIND, DEREFERENCE)
    stream.skip_to(member.offset_data)
    return Member(member.name, member.size, stream.content(member.size))


class _TarStream(io.RawIOBase):
    """A forward-only file from which tarfile reads headers."""

    def __init__(self, content: IO[bytes]) -> None:
        self._content = content
        self._position = 0
        self._headers = 0
        self._last = b""

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or position < self._position:
            raise tarfile.ReadError("a header points backwards")
        self.skip_to(position)
        return position

    def read(self, size: int = -1) -> bytes:
        """Read a header, or part of one."""
        self._headers += size
        if not 0 <= size <= MAX_HEADER or self._headers > MAX_HEADER:
            raise ConfigurationError(f"the archive cannot be unpacked: a header takes more than {MAX_HEADER} bytes")
        self._last = self._content.read(size)
        self._position += len(self._last)
        return self._last

    def content(self, size: int) -> Iterator[bytes]:
        """Yield the content of a file."""
        self._headers = 0
        with convert_errors(TAR_DAMAGE):
            while size > 0:
                data = self._content.read(min(size, CHUNK))
                if not data:
                    raise EOFError("unexpected end of a file")
                size -= len(data)
                self._position += len(data)
                yield data

    def skip_to(self, position: int) -> None:
        """Read and discard up to a position."""
        if position < self._position:
            raise tarfile.ReadError("a header points backwards")
        for _ in self.content(position - self._position):
            pass

    def check_end(self) -> None:
        """Raise a TarError unless the archive ends correctly, which tarfile itself does not check."""
        if self._last != END:
            raise tarfile.ReadError("there is no end")
        left = MAX_TRAILER
        while data := self._content.read(CHUNK):  # gzip's checksum comes last
            left -= len(data)
            if left < 0:
                raise tarfile.ReadError("there is data after its end")


def zip_members(archive: BinaryIO) -> Iterator[Member]:
    """Yield the members. Raise ConfigurationError for a member of another kind, or a damaged archive."""
    with convert_errors(ZIP_DAMAGE):
        opened = zipfile.ZipFile(cast("IO[bytes]", _GuardedFile(archive)))
    for member in opened.infolist():
        yield _zip_member(opened, member)


def _zip_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Member:
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
    return Member(name, member.file_size, _zip_content(archive, member))


def _zip_content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
    with convert_errors(ZIP_DAMAGE), archive.open(member) as file:
        while data := file.read(CHUNK):
            yield data


class _GuardedFile(io.RawIOBase):
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

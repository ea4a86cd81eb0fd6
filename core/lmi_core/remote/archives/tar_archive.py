"""Reading of tar archives, compressed by gzip or not, each byte once and with bounded memory.

Only files and folders are read; tarfile's `data` filter also allows links within the archive.
"""

import gzip
import io
import tarfile
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
DAMAGE = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, RecursionError, ValueError, OverflowError)


def tar_members(archive: BinaryIO, *, compressed: bool) -> Iterator[Member]:
    """Yield the members. Raise ConfigurationError for a member of another kind, or a damaged archive."""
    content = gzip.GzipFile(fileobj=archive) if compressed else archive
    stream = _Stream(cast("IO[bytes]", content))
    with convert_errors(DAMAGE), tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:", encoding="utf-8") as tar:
        while (member := tar.next()) is not None:
            yield _member(member, stream)
            stream.skip_to(tar.offset)
            cast("Any", tar).members.clear()  # otherwise, they accumulate
        stream.check_end()


def _member(member: tarfile.TarInfo, stream: "_Stream") -> Member:
    if member.isdir():
        return Member(member.name, 0, None)
    if member.sparse is not None:
        raise refuse_kind(member.name, "a file with holes", "pack it without --sparse")
    if not member.isreg():
        raise refuse_kind(member.name, OTHER_KIND, DEREFERENCE)
    stream.skip_to(member.offset_data)
    return Member(member.name, member.size, stream.content(member.size))


class _Stream(io.RawIOBase):
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
        with convert_errors(DAMAGE):
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

"""Archives of files in memory, right ones and wrong ones."""

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Mapping


def tar_of(files: Mapping[str, bytes], *further: tarfile.TarInfo, compressed: bool = True) -> bytes:
    """Return a tar archive of the files, and of further members without content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in further:
            tar.addfile(member)
    return gzip.compress(packed.getvalue(), 1) if compressed else packed.getvalue()


def zip_of(files: Mapping[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED, mode: int = 0) -> bytes:
    """Return a zip archive of the files, all of them with this mode."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", compression) as archive:
        for name, content in files.items():
            member = zipfile.ZipInfo(name)
            member.compress_type = compression
            member.external_attr = mode << 16
            archive.writestr(member, content)
    return packed.getvalue()


def zip_link(name: str, target: str) -> bytes:
    return zip_of({name: target.encode()}, mode=stat.S_IFLNK | 0o777)


def tar_member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member

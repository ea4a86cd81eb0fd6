"""The files of a folder that engines read, with what tells one version of a file from another."""

import os
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from lmi_core.remote.copies import CopiedFile, version_of
from lmi_core.remote.selection import useless
from lmi_core.workers.adapter_files import PREFIX


def list_files(folder: Path) -> tuple[Sequence[CopiedFile], int]:
    """Return a folder's files by path, and the bytes in those that no engine reads beside others.

    Hidden files are left out, and adapters below the folder, which come and go by themselves.
    """
    found = list[CopiedFile]()
    for parent, folders, names in os.walk(folder):
        if Path(parent) != folder and any(name.startswith(PREFIX) for name in names):
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [Path(parent, name) for name in names if not name.startswith(".")]
        found += [copied_file(folder, path) for path in paths if path.is_file()]
    repeated = useless(each.path for each in found)
    wanted = [each for each in found if each.path not in repeated]
    return sorted(wanted, key=attrgetter("path")), sum(each.size for each in found if each.path in repeated)


def copied_file(folder: Path, file: Path) -> CopiedFile:
    """Describe a file as it is now. Raise OSError if there is none."""
    status = file.stat()
    path = str(file.relative_to(folder))
    return CopiedFile(path, status.st_size, version_of(path, status.st_size, status.st_mtime_ns))


def version(files: Sequence[CopiedFile]) -> str:
    return version_of(*(each.identity for each in files))

"""The files of a folder that engines read, with the facts that distinguish versions of a file."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from lmi_core.remote.copies import CopiedFile, version_of
from lmi_core.remote.selection import useless

BLOBS = "blobs"  # folder of the hub's cache in which files are named by their hashes
CONFIG = "adapter_config.json"  # its presence makes a folder an adapter
WEIGHTS = "adapter_model"  # the names of its weights start with this


def list_files(folder: Path) -> tuple[Sequence[CopiedFile], int]:
    """Return a folder's files by path, and the bytes in files that engines ignore if there are others.

    Skip hidden files, and adapters below the folder, which are loaded and unloaded separately. Links are followed.
    """
    found = [describe_file(folder, path) for path in _files(folder, ())]
    repeated = useless(each.path for each in found)
    wanted = [each for each in found if each.path not in repeated]
    return sorted(wanted, key=attrgetter("path")), sum(each.size for each in found if each.path in repeated)


def describe_file(folder: Path, file: Path) -> CopiedFile:
    """Describe a file as it is now. Raise OSError if it does not exist."""
    status = file.stat()
    path, target = str(file.relative_to(folder)), file.resolve()
    is_blob = file.is_symlink() and target.parent.name == BLOBS
    content = target.name if is_blob else status.st_mtime_ns
    return CopiedFile(path, status.st_size, version_of(path, status.st_size, content))


def _files(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    """Yield the files of a folder, including its subfolders; `above` contains the real paths of its parent folders."""
    real = folder.resolve()
    if real in above:  # a link to a parent folder
        return
    try:
        entries = list(folder.iterdir())
    except PermissionError:
        if not above:
            raise
        return  # unreadable, such as lost+found
    if above and any(each.name == CONFIG or each.name.startswith(WEIGHTS) for each in entries):
        return
    for each in entries:
        if each.name.startswith("."):
            continue
        if each.is_dir():
            yield from _files(each, (*above, real))
        elif each.is_file():
            yield each

"""The state of an adapter's files, which shows whether they have changed since they were read."""

import os
from pathlib import Path

PREFIX = "adapter_"  # prefix of all file names that engines read

FilesState = tuple[tuple[str, int, int], ...]  # name, size and modification time of each file


def state_of(folder: Path) -> FilesState:
    """Return the state of an adapter's files; () without files."""
    try:
        with os.scandir(folder) as entries:
            files = [(entry.name, entry.stat()) for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return ()
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in files))

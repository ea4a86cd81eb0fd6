"""A fault in the files of a model."""

from pathlib import Path


class Fault(Exception):
    """The reason why a model cannot be loaded, as a sentence that names the file."""


def unreadable(error: OSError, file: Path | None = None) -> str:
    """Return a sentence about why a file cannot be read; `file` is its name if the error has none."""
    where = file or error.filename or "a file"
    if isinstance(error, PermissionError):
        return f"{where}: no permission to read it"
    if isinstance(error, IsADirectoryError):
        return f"{where}: a folder, where a file is expected"
    return f"{where}: {error.strerror or error}"

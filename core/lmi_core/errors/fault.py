"""A fault that the files of a model show."""

from pathlib import Path


class Fault(Exception):
    """A reason for which a model cannot be loaded, as a sentence that names the file."""


def unreadable(error: OSError, file: Path | None = None) -> str:
    """Return why a file cannot be read, in a sentence that names it; `file` where the error does not."""
    where = file or error.filename or "a file"
    if isinstance(error, PermissionError):
        return f"{where}: no permission to read it"
    if isinstance(error, IsADirectoryError):
        return f"{where}: a folder, where a file is expected"
    return f"{where}: {error.strerror or error}"

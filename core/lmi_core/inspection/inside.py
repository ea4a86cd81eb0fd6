"""Names of files that a model's own files give."""

from pathlib import PurePosixPath


def is_outside(name: str) -> bool:
    """Return whether a name leads out of the folder that it is given in."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts

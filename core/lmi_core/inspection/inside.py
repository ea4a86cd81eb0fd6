"""File names in a model's own files."""

from pathlib import PurePosixPath


def is_outside(name: str) -> bool:
    """Return whether a name points outside its folder."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts

"""Checks of free disk space, and sizes in words."""

import shutil
from pathlib import Path

from lmi_core.configuration.cache import CACHE_VARIABLE
from lmi_core.errors import ConfigurationError

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
THOUSAND = 1000
REMEDY = "free some space, or set {} to a folder on another disk"


def check_space(source: str, folder: Path, needed: int, variable: str = CACHE_VARIABLE) -> None:
    """Raise ConfigurationError unless the folder's disk has `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigurationError(
            f"{source}: the download needs {in_words(needed)}, but the disk of {folder} has {in_words(free)} free: "
            f"{REMEDY.format(variable)}"
        )


def in_words(size: float) -> str:
    """Return a number of bytes in the form `4.2 GB`."""
    for unit in UNITS:
        if size < THOUSAND or unit == UNITS[-1]:
            return f"{size:.3g} {unit}" if size < THOUSAND and unit != "B" else f"{size:.0f} {unit}"
        size /= THOUSAND
    raise AssertionError

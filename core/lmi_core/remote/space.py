"""Checks of free disk space."""

import shutil
from pathlib import Path

from lmi_core.configuration.cache import CACHE_VARIABLE
from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import in_words

REMEDY = "free some space, or set {} to a folder on another disk"


def check_space(source: str, folder: Path, needed: int, variable: str = CACHE_VARIABLE) -> None:
    """Raise ConfigurationError unless the folder's disk has `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigurationError(
            f"{source}: the download needs {in_words(needed)}, but the disk of {folder} has {in_words(free)} free: "
            f"{REMEDY.format(variable)}"
        )

"""Checks of free disk space, and the messages for errors of disks."""

import errno
import os
import shutil
from pathlib import Path

from lmi_core.configuration.cache import CACHE_VARIABLE, DOWNLOAD_VARIABLE
from lmi_core.configuration.location import without_secrets
from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import readable

REMEDY = "free some space, or set {} to a folder on another disk"


def check_space(source: str, folder: Path, needed: int, variable: str = CACHE_VARIABLE) -> None:
    """Raise ConfigurationError unless the folder's disk has `needed` bytes free."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigurationError(
            f"{source}: the download needs {readable(needed)}, but the disk of {folder} has {readable(free)} free: "
            f"{REMEDY.format(variable)}"
        )


def explain(error: OSError, source: str, downloads: Path, on_hub: bool = False) -> str:
    """Return a sentence about a disk error, or an error reading the source."""
    where = error.filename or str(downloads)
    variable = DOWNLOAD_VARIABLE if os.environ.get(DOWNLOAD_VARIABLE) else CACHE_VARIABLE
    if on_hub:
        variable = "HF_HOME"
    if where == source:
        return f"{source} cannot be read: {error.strerror or error}"
    source = without_secrets(source)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{source}: the disk of {where} is full: {REMEDY.format(variable)}"
    return f"{source} cannot be written to {where}: {error.strerror or error}: set {variable} to another folder"

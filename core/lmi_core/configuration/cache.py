"""The cache folder, whose contents can all be created or downloaded again."""

from collections.abc import Mapping
from pathlib import Path

CACHE_VARIABLE = "LMI_CACHE"
DOWNLOAD_VARIABLE = "SERVING_DOWNLOAD_DIR"  # DJLServing's variable; its value `default` means that it is not set


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return `LMI_CACHE`, or `~/.cache/lmi` by default."""
    given = environment.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "lmi"


def download_folder(environment: Mapping[str, str]) -> Path:
    """Return `SERVING_DOWNLOAD_DIR`, which applies to downloads only, or the cache folder."""
    given = environment.get(DOWNLOAD_VARIABLE)
    return Path(given) if given and given != "default" else cache_folder(environment)

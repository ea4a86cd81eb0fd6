"""The folder in which everything is kept that can be made or downloaded again."""

from collections.abc import Mapping
from pathlib import Path

CACHE_VARIABLE = "LMI_CACHE"
DOWNLOAD_VARIABLE = "SERVING_DOWNLOAD_DIR"  # DJLServing's; `default` is its word for not given


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return `LMI_CACHE`, or `~/.cache/lmi` where it is not set."""
    given = environment.get(CACHE_VARIABLE)
    return Path(given) if given else Path.home() / ".cache" / "lmi"


def download_folder(environment: Mapping[str, str]) -> Path:
    """Return `SERVING_DOWNLOAD_DIR`, which is for downloads alone, or the cache folder."""
    given = environment.get(DOWNLOAD_VARIABLE)
    return Path(given) if given and given != "default" else cache_folder(environment)

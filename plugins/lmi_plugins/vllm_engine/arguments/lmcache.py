"""LMCache, a store of keys and values beyond vLLM's own, and the file with its configuration."""

import os
from importlib.util import find_spec
from pathlib import Path

from lmi_core.errors import ConfigurationError

CONFIG_FILE_VARIABLE = "LMCACHE_CONFIG_FILE"


def use_lmcache(directory: Path, config_file: str | None) -> None:
    """Tell LMCache, which vLLM's processes import, of its configuration. Raise ConfigurationError if it is missing."""
    if config_file is None:
        return
    path = directory / config_file
    if not path.is_file():
        raise ConfigurationError(f"option.lmcache_config_file={config_file}: there is no such file in {directory}")
    if find_spec("lmcache") is None:
        raise ConfigurationError(f"option.lmcache_config_file={config_file} needs LMCache: pip install lmcache")
    os.environ[CONFIG_FILE_VARIABLE] = str(path.resolve())

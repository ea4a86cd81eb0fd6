"""Keys of DJLServing and its containers that have no effect here, each with the reason."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from lmi_core.configuration.properties import OPTION_PREFIX


def _by_key() -> dict[str, str]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    prefixed = ((prefix, tables[table]) for prefix, table in ((OPTION_PREFIX, "options"), ("", "server")))
    return {prefix + name: why for prefix, table in prefixed for why, names in table.items() for name in names}


KEYS_WITHOUT_EFFECT: Mapping[str, str] = _by_key()

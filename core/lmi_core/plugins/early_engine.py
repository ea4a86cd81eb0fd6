"""Detection of the engine of a model directory before any plugin is imported.

Its worker then imports the engine's libraries while the server imports its own and reads the directory.
"""

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, cast

from lmi_core.configuration.java_properties import parse
from lmi_core.configuration.model_directory import PROPERTIES_FILE
from lmi_core.errors import ConfigurationError

MODEL_FILE = "config.json"
SCRIPT = "model.py"
FUNCTION = b"handle"  # in a script that may answer instead of an engine
ROLLING_BATCH = "option.rolling_batch"
VARIABLE = "OPTION_ROLLING_BATCH"
DEFAULT = "auto"
ENGINES = ("lmi_plugins.torch_engine.client.early",)  # modules that define the members of EarlyEngine


class EarlyEngine(Protocol):
    """An engine whose worker can be started before its plugin is imported."""

    BACKEND: str  # the name of the backend that uses the worker
    TARGET: str
    PREPARE: str  # imports the target's dependencies
    ENVIRONMENT: Mapping[str, str]

    def is_selected(self, rolling_batch: str) -> bool:
        """Return whether this value of option.rolling_batch selects the backend, according to a quick look."""


def find_early_engine(
    models: Sequence[str], options: Sequence[str], environment: Mapping[str, str]
) -> EarlyEngine | None:
    """Return the engine of the only model; None if a quick check of its directory does not determine it.

    `models` have the form [NAME=]DIR, `options` KEY=VALUE. A wrong guess only costs the start of an unused worker.
    """
    if len(models) != 1:
        return None
    directory = Path(models[0].rpartition("=")[2])
    with suppress(ConfigurationError, OSError, ValueError):  # reported when the directory is read for serving
        if not (directory / MODEL_FILE).is_file():
            return None
        script = directory / SCRIPT
        if script.exists() and FUNCTION in script.read_bytes():
            return None
        given = {**_variable(environment), **_keys(directory / PROPERTIES_FILE), **_parse_options(options)}
        engines = [cast("EarlyEngine", importlib.import_module(name)) for name in ENGINES]
        rolling_batch = given.get(ROLLING_BATCH, DEFAULT)
        return next((engine for engine in engines if engine.is_selected(rolling_batch)), None)
    return None


def early_name(item: str) -> str:
    """Return the name of the model `[NAME[:...]=]DIR`, whose engine was found."""
    given, _, directory = item.rpartition("=")
    return given.removeprefix("[").partition(":")[0] or Path(directory).resolve().name


def _variable(environment: Mapping[str, str]) -> dict[str, str]:
    return {ROLLING_BATCH: environment[VARIABLE]} if environment.get(VARIABLE) else {}


def _keys(file: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in parse(file.read_text("utf-8"))} if file.is_file() else {}


def _parse_options(options: Sequence[str]) -> dict[str, str]:
    return {key.strip(): value.strip() for key, _, value in (option.partition("=") for option in options)}

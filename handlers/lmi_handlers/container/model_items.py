"""Parser of DJLServing's notation for models: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`."""

import re
from dataclasses import dataclass
from pathlib import Path

from lmi_core.configuration.properties import ALL_DEVICES
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import begins

ALL = "ALL"
NONE = "NONE"
ENGINES = ("Python", "MPI")  # the engines of LMI's containers; both are served the same way here
PARTS = 4

_SEPARATORS = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True)
class ModelItem:
    """A model to serve or, without a name, possibly a folder of several."""

    url: str
    source: str  # where it was given
    name: str | None = None
    version: str | None = None
    devices: str | None = None

    @property
    def warning(self) -> str | None:
        if self.devices in (None, "", "*"):
            return None
        model = self.name or self.url
        return f"{begins(self.source)}the devices of {model} have no effect: {ALL_DEVICES}. Given: {self.devices}"


def parse_item(text: str, source: str) -> ModelItem:
    """Parse one item; `=` after a `/` belongs to the path. Raise ConfigurationError where the item is not valid."""
    endpoint, equals, url = text.strip().partition("=")
    endpoint = endpoint.removeprefix("[").removesuffix("]")
    if not text.strip():
        raise ConfigurationError(f"{begins(source)}a model must be given as NAME=DIR. Given: an empty string")
    if not equals or any(mark in endpoint for mark in "/?"):
        return ModelItem(text.strip(), source)
    if not url:
        raise ConfigurationError(f"{begins(source)}a model must be given as NAME=DIR. Given: {text}")
    parts = endpoint.split(":")
    if len(parts) > PARTS:
        raise ConfigurationError(
            f"{begins(source)}{endpoint} must have at most the parts NAME:VERSION:ENGINE:DEVICES, with `;` between "
            f"devices. Given: {text}"
        )
    name, version, engine, devices = (part or None for part in parts + [""] * (PARTS - len(parts)))
    _check_engine(engine, text, source)
    return ModelItem(url, source, name, version, devices)


def parse_items(text: str, source: str) -> list[ModelItem]:
    """Parse items separated by commas or blanks, which an existing path may itself contain."""
    whole = parse_item(text, source)
    if Path(whole.url).exists():
        return [whole]
    return [parse_item(item, source) for item in _SEPARATORS.split(text) if item]


def _check_engine(engine: str | None, text: str, source: str) -> None:
    if engine is not None and engine.lower() not in (known.lower() for known in ENGINES):
        raise ConfigurationError(
            f"{begins(source)}the engine must be {' or '.join(ENGINES)}, or be omitted: this server runs language "
            f"models and Python model functions. Given: {engine} in {text}"
        )

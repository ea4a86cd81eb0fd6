"""DJLServing's grammar of models to serve: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`."""

import re
from dataclasses import dataclass
from pathlib import Path

from lmi_core.configuration.properties import ALL_DEVICES
from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import begins

ALL = "ALL"
NONE = "NONE"
ENGINES = ("Python", "MPI")  # how LMI starts its own; here either value is served in the same way
PARTS = 4

_SEPARATORS = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True)
class ModelItem:
    """One model, or a folder of several where it has no name."""

    url: str
    source: str  # where a person gave it
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
    """Read one item. A path that holds `=` needs a `/` before it, as no name does. Raises ConfigurationError."""
    endpoint, equals, url = text.strip().partition("=")
    endpoint = endpoint.removeprefix("[").removesuffix("]")
    if not text.strip():
        raise ConfigurationError(f"{begins(source)}an empty text names no directory: write NAME=DIR")
    if not equals or any(mark in endpoint for mark in "/?"):
        return ModelItem(text.strip(), source)
    if not url:
        raise ConfigurationError(f"{begins(source)}{text} names no directory: write NAME=DIR")
    parts = endpoint.split(":")
    if len(parts) > PARTS:
        raise ConfigurationError(
            f"{begins(source)}{endpoint} has more parts than NAME:VERSION:ENGINE:DEVICES, in which `;` separates"
            f" devices. Given: {text}"
        )
    name, version, engine, devices = (part or None for part in parts + [""] * (PARTS - len(parts)))
    _check_engine(engine, text, source)
    return ModelItem(url, source, name, version, devices)


def parse_items(text: str, source: str) -> list[ModelItem]:
    """Read a list whose items have commas or blanks between them, but for those of an existing path."""
    whole = parse_item(text, source)
    if Path(whole.url).exists():
        return [whole]
    return [parse_item(item, source) for item in _SEPARATORS.split(text) if item]


def _check_engine(engine: str | None, text: str, source: str) -> None:
    if engine is not None and engine.lower() not in (known.lower() for known in ENGINES):
        raise ConfigurationError(
            f"{begins(source)}the engine must be {' or '.join(ENGINES)}, or left out: this server runs language models"
            f" and Python handlers. Given: {engine} in {text}"
        )

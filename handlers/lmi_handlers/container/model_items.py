"""Parser of DJLServing's notation for models: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.properties import check_engine
from lmi_core.errors import ConfigurationError
from lmi_core.host.devices import parse_devices
from lmi_handlers.container.declarations import begins

ALL = "ALL"
NONE = "NONE"
PARTS = 4
DEFAULT_ENGINE = "Python"

_SEPARATORS = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True)
class ModelItem:
    """A model to serve; without a name, the URL may also be that of a folder of several models."""

    url: str
    source: str  # where it was set
    name: str | None = None
    version: str | None = None
    devices: str | None = None

    @property
    def overrides(self) -> tuple[Setting, ...]:
        """The keys in the notation, which override those of the model."""
        return () if self.devices is None else (Setting("load_on_devices", self.devices, self.source),)


def parse_item(text: str, source: str) -> ModelItem:
    """Parse one item; `=` after a `/` belongs to the path. Raise ConfigurationError if the item is invalid."""
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
    checks: tuple[tuple[str, Callable[[str], object], str], ...] = (
        ("the engine", check_engine, engine or DEFAULT_ENGINE),
        ("the devices", parse_devices, devices or ""),
    )
    for what, check, given in checks:
        try:
            check(given)
        except ValueError as error:
            raise ConfigurationError(f"{begins(source)}{what} {error}. Given: {given} in {text}") from None
    return ModelItem(url, source, name, version, devices)


def parse_items(text: str, source: str) -> list[ModelItem]:
    """Parse items separated by commas or spaces, which existing paths may contain."""
    whole = parse_item(text, source)
    if Path(whole.url).exists():
        return [whole]
    return [parse_item(item, source) for item in _SEPARATORS.split(text) if item]

"""Model directories for tests of configuration, and the messages about them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lmi_core.configuration.configuration import Configuration, Setting
from lmi_core.configuration.properties import Properties
from lmi_core.errors import ConfigurationError


class Directory:
    """A model directory whose `serving.properties` a test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(
        self,
        text: str | None = None,
        environment: Mapping[str, str] | None = None,
        common: Sequence[Setting] = (),
        overrides: Sequence[Setting] = (),
    ) -> Configuration:
        if text is not None:
            (self.path / "serving.properties").write_text(text, encoding="utf-8")
        return Configuration.read(self.path, environment or {}, common, overrides)


def load_all(configuration: Configuration, *types: type[Properties]) -> None:
    for properties_type in types:
        configuration.load(properties_type)
    configuration.explain_unread({})
    configuration.raise_errors()


def error_of(configuration: Configuration, *types: type[Properties]) -> str:
    with pytest.raises(ConfigurationError) as raised:
        load_all(configuration, *types)
    return raised.value.message


def warnings_of(configuration: Configuration, *types: type[Properties]) -> list[str]:
    load_all(configuration, *types)
    return configuration.warnings

"""Combination of command line, environment, config.properties and /opt/ml/model into what `lmi serve` does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lmi_core.configuration.configuration import Given
from lmi_core.errors import ConfigurationError
from lmi_core.remote.fetching import local_directory
from lmi_handlers.container.address import Address, choose_address, choose_grpc_port
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.locations import Fetch
from lmi_handlers.container.search import Arguments, PlacedModel, Search, by_one_name
from lmi_handlers.container.settings import FILE_NAME, Settings, read_file
from lmi_handlers.container.variables import BASE_DIRECTORY, MODEL_SERVER_HOME

BASE = Path("/opt/ml")  # in SageMaker's containers
HOME = Path("/opt/djl")  # in DJLServing's containers


@dataclass(frozen=True, slots=True)
class Launch:
    """The models to serve, the address, and the settings and warnings to report."""

    models: tuple[PlacedModel, ...]
    address: Address
    settings: Settings
    warnings: tuple[str, ...]
    config_file: Path | None = None
    grpc_port: Given | None = None  # None: gRPC is not served

    @property
    def listening(self) -> tuple[Given, ...]:
        """The host and the ports, each with its source."""
        return (*self.address, *([self.grpc_port] if self.grpc_port else []))


def read_launch(
    arguments: Arguments,
    environment: Mapping[str, str],
    base: Path = BASE,
    default_home: Path = HOME,
    fetch: Fetch = local_directory,
) -> Launch:
    """Read all settings and find the models. Raise ConfigurationError where a setting is wrong or there is no model.

    `fetch` returns the folder of an `s3://` URL; by default it downloads.
    """
    home = Path(environment.get(MODEL_SERVER_HOME) or default_home)
    file = arguments.config_file or _config_file(home)
    settings = Settings(environment, read_file(file) if file else ())
    if MODEL_SERVER_HOME in environment and not home.is_dir():
        settings.warnings.append(f"environment {MODEL_SERVER_HOME} has no effect: {home} does not exist")
    base_directory = settings.get(BASE_DIRECTORY)
    default = Path(base_directory.value if base_directory else base) / "model"
    search = Search(arguments, environment, settings, home, default, fetch)
    models = search.models()
    sign = str(default) if default.is_dir() and not search.by_command_line else None
    address = choose_address(arguments.host, arguments.port, settings, sign)
    models = [replace(model, overrides=(*model.overrides, *_overrides(arguments.options))) for model in models]
    grpc_port = choose_grpc_port(arguments.grpc_port, settings)
    return Launch(by_one_name(models), address, settings, (*settings.warnings, *search.warnings), file, grpc_port)


def _overrides(options: Sequence[str]) -> Iterator[Given]:
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigurationError(f"-o needs a key and its value, such as option.dtype=bf16. Given: {option}")
        yield Given(key.strip(), value.strip(), COMMAND_LINE)


def _config_file(home: Path) -> Path | None:
    places = (home / "conf" / FILE_NAME, home / FILE_NAME)
    return next((place for place in places if place.is_file()), None)

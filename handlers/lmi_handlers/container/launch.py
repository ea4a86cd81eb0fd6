"""The combined settings of `lmi serve` from command line, environment, config.properties and /opt/ml/model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from lmi_core.configuration.configuration import DEFAULT, Setting
from lmi_core.errors import ConfigurationError
from lmi_core.remote.fetching import local_directory
from lmi_handlers.access.options import DEFAULT_ACCESS, AccessOptions
from lmi_handlers.container.access_settings import choose_access, choose_limits
from lmi_handlers.container.address import Address, check_port, choose_address, choose_grpc_port
from lmi_handlers.container.declarations import COMMAND_LINE, begins
from lmi_handlers.container.locations import Fetch
from lmi_handlers.container.search import Arguments, PlacedModel, Search, check_names
from lmi_handlers.container.settings import FILE_NAME, Settings, read_file
from lmi_handlers.container.tgi_environment import DEFAULT_HOST, FLAG, read_tgi_environment
from lmi_handlers.container.variables import BASE_DIRECTORY, MODEL_SERVER_HOME
from lmi_handlers.http.connections.limits import DEFAULT_LIMITS, ConnectionLimits

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
    grpc_port: Setting | None = None  # None: gRPC is not served
    pages: bool = True  # whether browsers get HTML pages
    limits: ConnectionLimits = DEFAULT_LIMITS
    metrics: bool = True  # whether there are Prometheus routes
    access: AccessOptions = DEFAULT_ACCESS
    evicts_models: bool = False  # whether the least recently used models are unloaded to make room for others
    options: tuple[Setting, ...] = ()  # keys that override those of every model, also of one that is registered later
    faults: tuple[str, ...] = ()  # models that were found but cannot be read, which prevents the start

    @property
    def listening(self) -> tuple[Setting, ...]:
        """The host and the ports of inference, each with its source."""
        return (*self.address, *([self.grpc_port] if self.grpc_port else []))


def read_launch(
    arguments: Arguments,
    environment: Mapping[str, str],
    base: Path = BASE,
    default_home: Path = HOME,
    fetch: Fetch = local_directory,
) -> Launch:
    """Read all settings and find the models. Raise ConfigurationError if a setting is invalid or there is no model.

    `fetch` returns the folder of an `s3://` URL; by default it downloads.
    """
    tgi = read_tgi_environment(environment) if arguments.tgi_environment else None
    if tgi is not None:
        environment = tgi.rest
        if tgi.model is not None and not (arguments.models or arguments.items) and arguments.model_store is None:
            arguments = replace(arguments, models=(tgi.model,))
    home = Path(environment.get(MODEL_SERVER_HOME) or default_home)
    places = (home / "conf" / FILE_NAME, home / FILE_NAME)
    file = arguments.config_file or next((place for place in places if place.is_file()), None)
    settings = Settings(environment, read_file(file) if file else (), () if tgi is None else tgi.common)
    if MODEL_SERVER_HOME in environment and not home.is_dir():
        settings.warnings.append(f"environment {MODEL_SERVER_HOME} has no effect: {home} does not exist")
    if tgi is not None:
        settings.warnings += tgi.warnings
    base_directory = settings.get(BASE_DIRECTORY)
    default = Path(base_directory.value if base_directory else base) / "model"
    search = Search(arguments, environment, settings, home, default, fetch)
    models = search.models()
    sign = str(default) if default.is_dir() and not search.by_command_line else None
    address = choose_address(arguments.host, arguments.port, settings, sign)
    if tgi is not None:
        address = _use_tgi_address(address, tgi.port)
    options = tuple(_options(arguments))
    models = [replace(model, overrides=(*model.overrides, *options)) for model in models]
    grpc_port = choose_grpc_port(arguments.grpc_port, settings)
    access = choose_access(settings, environment, address)
    warnings = (*settings.warnings, *search.warnings)
    pages = settings.is_on("pages", True) if arguments.pages is None else arguments.pages
    metrics, evicts = settings.is_on("prometheus", True), settings.is_on("evict_models")
    limits = choose_limits(settings)
    placed, faults = check_names(models), tuple(search.faults)
    return Launch(
        placed, address, settings, warnings, file, grpc_port, pages, limits, metrics, access, evicts, options, faults
    )


def _use_tgi_address(address: Address, port: Setting) -> Address:
    """Return the address with TGI's host and port instead of defaults, and the names of TGI's variables."""
    if address.port.source == DEFAULT or (address.port.source != COMMAND_LINE and port.source != FLAG):
        check_port(port)
        address = address._replace(port=port)
    if address.host.source == DEFAULT:
        address = address._replace(host=Setting("host", DEFAULT_HOST, FLAG))
    return address


def _options(arguments: Arguments) -> Iterator[Setting]:
    for option in arguments.options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ConfigurationError(
                f"{begins(arguments.options_source)}an option needs a key and its value, such as option.dtype=bf16. "
                f"Given: {option}"
            )
        yield Setting(key.strip(), value.strip(), arguments.options_source)

"""Search for the models to serve, also in DJLServing's notation: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`."""

import difflib
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.location import (
    GGUF,
    RemoteModel,
    archive_name,
    is_archive_name,
    is_hub_id,
    is_s3,
    is_web,
)
from lmi_core.configuration.model_directory import find_model_directories, is_model_directory, model_variable
from lmi_core.configuration.properties import check_engine
from lmi_core.errors import ConfigurationError
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.host.devices import parse_devices
from lmi_core.remote.hub import cached_snapshot
from lmi_handlers.container.declarations import COMMAND_LINE, begins
from lmi_handlers.container.locations import Fetch, inferred_name, local_directory, local_path
from lmi_handlers.container.settings import Settings
from lmi_handlers.container.variables import MULTI_MODEL

NOTHING = (
    "there is no model to serve. Give a model directory (lmi serve DIR), a model with a name (lmi serve NAME=DIR), "
    "a model store (-s DIR, or SERVING_MODEL_STORE), SERVING_LOAD_MODELS, or a model id in HF_MODEL_ID"
)
VERY_CLOSE = 0.9  # similarity of a path and a folder, from 0 to 1: one letter is missing or wrong
ALL = "ALL"
NONE = "NONE"
PARTS = 4
DEFAULT_ENGINE = "Python"

_SEPARATORS = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of `lmi serve` as given."""

    models: tuple[str, ...] = ()  # positional: `DIR` or `NAME=DIR`
    items: tuple[str, ...] = ()  # values of -m
    model_store: str | None = None
    config_file: Path | None = None
    host: str | None = None
    port: int | None = None
    options: tuple[str, ...] = ()  # `KEY=VALUE`, for every model
    grpc_port: int | None = None
    pages: bool | None = None  # None: use the settings
    options_source: str = COMMAND_LINE  # for messages about the options
    tgi_environment: bool = False  # whether to read the variables of text-generation-launcher
    plugins_directory: Path | None = None  # for plugins in addition to installed ones


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """A model to serve: its name, its directory, and the source that named it."""

    name: str
    directory: Path
    source: str
    version: str | None = None
    overrides: tuple[Setting, ...] = ()  # keys that take precedence over those in its directory


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


class Search:
    """A search for models on the command line, in the environment, in the settings, or in the default folder."""

    def __init__(
        self,
        arguments: Arguments,
        environment: Mapping[str, str],
        settings: Settings,
        home: Path,
        default: Path,
        fetch: Fetch,
    ) -> None:
        self.warnings: list[str] = []
        self.faults: list[str] = []  # the archives of a model store that cannot be unpacked
        self.by_command_line = False
        self._arguments = arguments
        self._environment = environment
        self._settings = settings
        self._home = home
        self._default = default
        self._fetch = fetch

    def models(self) -> list[PlacedModel]:
        """Return the models to serve from the start; none if a setting defers loading to requests."""
        store = self._arguments.model_store
        given_items = [text for text in self._arguments.items if text.upper() != ALL]
        items = [
            *(parse_item(text, COMMAND_LINE) for text in self._arguments.models),
            *(item for text in given_items for item in parse_items(text, "-m")),
        ]
        if items or store is not None:
            self.by_command_line = True
            self._warn_of_unused(store if items else None)
        if items:
            return self._place(items)
        if store is not None:
            return self._in_store(store, "-s")
        serves_all = any(text.upper() == ALL for text in self._arguments.items)
        given = None if serves_all else self._settings.get("load_models")
        if given is not None and given.value.upper() == NONE:
            return []
        if given is not None and given.value.upper() != ALL and (items := parse_items(given.value, given.source)):
            return self._place(items)
        if given := self._settings.get("model_store"):
            return self._in_given_store(given)
        if self._default.is_dir():
            with suppress(ConfigurationError):  # not a model; the message below lists other ways to name one
                return self._in_store(str(self._default), str(self._default))
        elif model_variable(self._environment):
            return [self._named_by_environment(self._default)]
        if self._environment.get(MULTI_MODEL, "").strip().lower() == "true":
            return []
        state = "contains none" if self._default.is_dir() else "does not exist"
        raise ConfigurationError(f"{NOTHING}. {self._default}, where SageMaker puts models, {state}")

    def _warn_of_unused(self, store: str | None) -> None:
        given = [given for key in ("load_models", "model_store") if (given := self._settings.get(key))]
        unused = [f"{each.source}: {each.name}={each.value}" for each in given if each.value.upper() != ALL]
        unused += [] if store is None else [f"-s {store}"]
        self.warnings += [f"{each} has no effect: the command line names the models" for each in unused]

    def _place(self, items: list[ModelItem]) -> list[PlacedModel]:
        return [model for item in items for model in self._find(item)]

    def _find(self, item: ModelItem) -> list[PlacedModel]:
        if item.source == COMMAND_LINE and "/" in item.url and is_hub_id(item.url) and not Path(item.url).exists():
            check_no_path(item.url)
            folders = [str(path) for path in Path().glob("*/*") if path.is_dir()]
            if near := difflib.get_close_matches(item.url, folders, n=1, cutoff=VERY_CLOSE):
                self.warnings.append(
                    f"{item.url} is not a folder here, so it is a model of the hub. Did you mean {near[0]}?"
                )
            overrides = (*hub_overrides(item.url, item.source), *item.overrides)
            return [
                PlacedModel(item.name or _served_name(item.url), Path(item.url), item.source, item.version, overrides)
            ]
        directory = local_directory(item.url, item.source, self._fetch)
        found = self._models_in(directory)
        alone = list(found.values()) == [directory]
        if not alone and (item.name is None or not found):
            return [PlacedModel(name, path, item.source, item.version, item.overrides) for name, path in found.items()]
        if not alone:
            raise ConfigurationError(
                f"{begins(item.source)}{item.name}={item.url} is a folder of several models ({', '.join(found)}): "
                "give each model a name, or remove the folder's name"
            )
        name = item.name or inferred_name(item.url, directory)
        return [PlacedModel(name, directory, item.source, item.version, item.overrides)]

    def _in_given_store(self, given: Setting) -> list[PlacedModel]:
        if is_s3(given.value) or is_web(given.value):
            return self._in_store(given.value, given.source)
        path = local_path(given.value, given.source) if "://" in given.value else Path(given.value)
        store = self._home / path if self._home.is_dir() else path
        if not store.exists() and model_variable(self._environment):
            self.warnings.append(
                f"{given.source}: {store} does not exist: only the model that the environment names is served"
            )
            return [self._named_by_environment(store)]
        return self._in_store(str(store), given.source)

    def _in_store(self, url: str, source: str) -> list[PlacedModel]:
        store = local_directory(url, source, self._fetch)
        found = self._models_in(store)
        if list(found.values()) == [store] and not is_model_directory(store):
            return [self._named_by_environment(store)]
        if store not in found.values() and (variable := model_variable(self._environment)):
            given = self._environment[variable]
            self.warnings.append(
                f"environment {variable}: every model of {store} that has no option.model_id of its own loads {given}"
            )
        if store in found.values():
            return [PlacedModel(inferred_name(url, store), store, source)]
        return [PlacedModel(name, path, source) for name, path in found.items()]

    def _named_by_environment(self, directory: Path) -> PlacedModel:
        """Return a model that is described only by the environment, named after HF_MODEL_ID as in DJLServing."""
        variable = model_variable(self._environment)
        assert variable is not None
        name = _served_name(self._environment[variable]) if variable == "HF_MODEL_ID" else directory.resolve().name
        return PlacedModel(name, directory, f"environment {variable}")

    def _models_in(self, directory: Path) -> dict[str, Path]:
        """Return the model directories of a folder by name, or the folder itself, with warnings about skipped entries.

        The archives of a model store are unpacked. Raise ConfigurationError if there is no model.
        """
        archives = [] if is_model_directory(directory) else _archives(directory)
        try:
            found = find_model_directories(directory, self._environment)
        except ConfigurationError:
            if not archives:
                raise
            found = {}
        alone = found if directory in found.values() else {}  # a model itself, or made one by environment variables
        if alone and not archives:
            return alone
        found = {} if alone else found
        for child in sorted(directory.iterdir()):
            if child.is_dir() and not child.name.startswith((".", "_")) and child not in found.values():
                self.warnings.append(f"{child} is not served: it contains no model")
        for archive in archives:
            self._unpack(archive, found)
        if not (found or alone or self.faults):
            raise ConfigurationError(f"{directory} contains no model: its archives have none at the top level")
        return found or alone

    def _unpack(self, archive: Path, found: dict[str, Path]) -> None:
        """Add the model of an archive to those found, or a warning or a fault."""
        name = archive_name(archive.name)
        if name in found:  # unpacked manually
            self.warnings.append(f"{archive} is not served: {found[name]} is the model of that name")
            return
        try:
            unpacked = self._fetch(str(archive))
        except ConfigurationError as error:
            self.faults.append(error.message)
            return
        if is_model_directory(unpacked):
            found[name] = unpacked
        else:
            self.warnings.append(f"{archive} is not served: it contains no model")


def _archives(store: Path) -> list[Path]:
    """Return the archives in a folder, in order. Several GGUF files are skipped, as variants of one model."""
    if not os.access(store, os.R_OK | os.X_OK):
        return []
    children = (child for child in store.iterdir() if is_archive_name(child.name) and not child.name.startswith("."))
    found = sorted(child for child in children if child.is_file())
    others = [child for child in found if child.suffix.lower() != GGUF]
    return found if len(found) <= len(others) + 1 else others


def hub_overrides(model_id: str, source: str) -> tuple[Setting, ...]:
    """Return the keys of a model of the hub, which also answers to its id."""
    return tuple(Setting(key, model_id, source) for key in ("option.model_id", "option.served_model_name"))


def check_no_path(name: str) -> None:
    """Raise ConfigurationError for a possible hub id that looks like the misspelt path of a folder on this host."""
    folder = Path(name).parent
    if folder.is_dir() and cached_snapshot(RemoteModel(name)) is None:
        children = [str(path) for path in folder.iterdir() if path.is_dir()]
        raise ConfigurationError(
            f"{name} does not exist in the folder {folder}.{did_you_mean(name, children)} To use the "
            f"model of the Hugging Face hub with this id, start in a folder that has no subfolder {folder}"
        )


def _served_name(model_id: str) -> str:
    """Return DJLServing's name of a model: `org_name` for `org/name`, the last part for a path or a URL."""
    last = model_id.rstrip("/").rpartition("/")[2] if "://" in model_id or Path(model_id).exists() else model_id
    return re.sub(r"\W", "_", last, flags=re.ASCII)


def check_names(models: list[PlacedModel]) -> tuple[PlacedModel, ...]:
    """Return the models. Raise ConfigurationError if two have the same name and version."""
    by_name: dict[tuple[str, str | None], PlacedModel] = {}
    for model in models:
        other = by_name.setdefault((model.name, model.version), model)
        if other is not model:
            version = "" if model.version is None else f" in version {model.version}"
            raise ConfigurationError(
                f"{begins(model.source)}two models are named {model.name}{version}: {other.directory} and "
                f"{model.directory}. Name them: NAME=DIR"
            )
    return tuple(models)

"""Search for the models to serve."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lmi_core.configuration.configuration import Given
from lmi_core.configuration.model_directory import find_model_directories, is_model_directory, model_variable
from lmi_core.errors import ConfigurationError
from lmi_core.remote.location import is_hub_id
from lmi_handlers.container.declarations import COMMAND_LINE, begins
from lmi_handlers.container.locations import ARCHIVES, Fetch, inferred_name, local_directory
from lmi_handlers.container.model_items import ALL, NONE, ModelItem, parse_item, parse_items
from lmi_handlers.container.server_keys import LOAD_MODELS, MODEL_STORE
from lmi_handlers.container.settings import Settings
from lmi_handlers.container.variables import MULTI_MODEL

NOTHING = (
    "there is no model to serve. Give a model directory (lmi serve DIR), a model with a name (lmi serve NAME=DIR), "
    "a model store (-s DIR, or SERVING_MODEL_STORE), SERVING_LOAD_MODELS, or a model id in HF_MODEL_ID"
)


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


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """A model to serve: its name, its directory, and the source that named it."""

    name: str
    directory: Path
    source: str
    version: str | None = None
    overrides: tuple[Given, ...] = ()  # keys that count before those of its directory


class Search:
    """Finder of models, on the command line, otherwise in environment and file, otherwise in the default folder."""

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
        self.by_command_line = False
        self._arguments = arguments
        self._environment = environment
        self._settings = settings
        self._home = home
        self._default = default
        self._fetch = fetch

    def models(self) -> list[PlacedModel]:
        store = self._arguments.model_store
        items = self._items_of_command_line()
        if items or store is not None:
            self.by_command_line = True
            self._warn_of_unused(store if items else None)
        if items:
            return self._place(items)
        if store is not None:
            return self._in_store(store, "-s")
        if items := self._items_of_settings():
            return self._place(items)
        if given := self._settings.get(MODEL_STORE):
            return self._in_given_store(given)
        return self._in_default()

    def _items_of_command_line(self) -> list[ModelItem]:
        items = [item for text in self._arguments.items if text.upper() != ALL for item in parse_items(text, "-m")]
        return [*(parse_item(text, COMMAND_LINE) for text in self._arguments.models), *items]

    def _warn_of_unused(self, store: str | None) -> None:
        given = [given for key in (LOAD_MODELS, MODEL_STORE) if (given := self._settings.get(key))]
        unused = [f"{each.source}: {each.name}={each.value}" for each in given if each.value.upper() != ALL]
        unused += [] if store is None else [f"-s {store}"]
        self.warnings += [f"{each} has no effect: the command line names the models" for each in unused]

    def _items_of_settings(self) -> list[ModelItem]:
        given = self._settings.get(LOAD_MODELS)
        if given is None or given.value.upper() == ALL or self._asks_for_all():
            return []
        if given.value.upper() == NONE:
            raise ConfigurationError(f"{given.source}: {LOAD_MODELS}={given.value} leaves no model to serve: {NOTHING}")
        return parse_items(given.value, given.source)

    def _asks_for_all(self) -> bool:
        return any(text.upper() == ALL for text in self._arguments.items)

    def _place(self, items: list[ModelItem]) -> list[PlacedModel]:
        self.warnings += [item.warning for item in items if item.warning]
        return [model for item in items for model in self._find(item)]

    def _find(self, item: ModelItem) -> list[PlacedModel]:
        if item.source == COMMAND_LINE and "/" in item.url and is_hub_id(item.url) and not Path(item.url).exists():
            return [_on_hub(item)]
        directory = local_directory(item.url, item.source, self._fetch)
        found = find_model_directories(directory, self._environment)
        self._warn_of_skipped(directory, found)
        alone = list(found.values()) == [directory]
        if item.name is None and not alone:
            return [PlacedModel(name, path, item.source, item.version) for name, path in found.items()]
        if not alone:
            raise ConfigurationError(
                f"{begins(item.source)}{item.name}={item.url} is a folder of several models ({', '.join(found)}): "
                "give each model a name, or remove the folder's name"
            )
        name = item.name or inferred_name(item.url, directory)
        return [PlacedModel(name, directory, item.source, item.version)]

    def _in_given_store(self, given: Given) -> list[PlacedModel]:
        store = self._home / given.value if self._home.is_dir() else Path(given.value)
        if not store.exists() and model_variable(self._environment):
            self.warnings.append(
                f"{given.source}: {store} does not exist: only the model that the environment names is served"
            )
            return [self._named_by_environment(store)]
        return self._in_store(given.value if "://" in given.value else str(store), given.source)

    def _in_default(self) -> list[PlacedModel]:
        if self._default.is_dir():
            with suppress(ConfigurationError):  # no model there; the message below lists more ways to name one
                return self._in_store(str(self._default), str(self._default))
        elif model_variable(self._environment):
            return [self._named_by_environment(self._default)]
        state = "contains none" if self._default.is_dir() else "does not exist"
        message = f"{NOTHING}. {self._default}, where SageMaker puts models, {state}"
        if self._environment.get(MULTI_MODEL, "").lower() == "true":
            message += (
                f". {MULTI_MODEL}=true asks for a server without models that loads them later, which is not supported"
            )
        raise ConfigurationError(message)

    def _in_store(self, url: str, source: str) -> list[PlacedModel]:
        store = local_directory(url, source, self._fetch)
        found = find_model_directories(store, self._environment)
        if list(found.values()) == [store] and not is_model_directory(store):
            return [self._named_by_environment(store)]
        self._warn_of_skipped(store, found)
        if store not in found.values() and (variable := model_variable(self._environment)):
            given = self._environment[variable]
            self.warnings.append(
                f"environment {variable}: every model of {store} that has no option.model_id of its own loads {given}"
            )
        if store in found.values():
            return [PlacedModel(inferred_name(url, store), store, source)]
        return [PlacedModel(name, path, source) for name, path in found.items()]

    def _named_by_environment(self, directory: Path) -> PlacedModel:
        """Return a model that only the environment describes, named after HF_MODEL_ID as in DJLServing."""
        variable = model_variable(self._environment)
        assert variable is not None
        name = _served_name(self._environment[variable]) if variable == "HF_MODEL_ID" else directory.resolve().name
        return PlacedModel(name, directory, f"environment {variable}")

    def _warn_of_skipped(self, store: Path, found: Mapping[str, Path]) -> None:
        if not found or store in found.values():
            return
        for child in sorted(store.iterdir()):
            if child.name.startswith((".", "_")) or child in found.values():
                continue
            if child.is_dir() or child.name.endswith(ARCHIVES):
                reason = "it contains no model" if child.is_dir() else "archives must be unpacked"
                self.warnings.append(f"{child} is not served: {reason}")


def _on_hub(item: ModelItem) -> PlacedModel:
    """Return a model of the hub, which also answers to its id."""
    keys = (("option.model_id", item.url), ("option.served_model_name", item.url))
    overrides = tuple(Given(key, value, item.source) for key, value in keys)
    return PlacedModel(item.name or _served_name(item.url), Path(item.url), item.source, item.version, overrides)


def _served_name(model_id: str) -> str:
    """Return DJLServing's name of a model: `org_name` for `org/name`, the last part for a path or a URL."""
    last = model_id.rstrip("/").rpartition("/")[2] if "://" in model_id or Path(model_id).exists() else model_id
    return re.sub(r"\W", "_", last, flags=re.ASCII)


def by_one_name(models: list[PlacedModel]) -> tuple[PlacedModel, ...]:
    """Return the models. Raise ConfigurationError where two share a name."""
    by_name: dict[str, PlacedModel] = {}
    for model in models:
        other = by_name.setdefault(model.name, model)
        if other is model:
            continue
        if other.version != model.version:
            raise ConfigurationError(
                f"{begins(model.source)}model {model.name} can be served in one version only. Given: {_shown(other)} "
                f"and {_shown(model)}. Give the second another name"
            )
        raise ConfigurationError(
            f"{begins(model.source)}two models are named {model.name}: {other.directory} and {model.directory}. Name"
            " them: NAME=DIR"
        )
    return tuple(models)


def _shown(model: PlacedModel) -> str:
    return f"{model.version or 'no version'} ({model.directory})"

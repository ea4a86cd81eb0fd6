"""The plan of a model, read from its directory and checked before anything starts."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lmi_core.backend import Backend
from lmi_core.configuration.configuration import DEFAULT, Configuration, Setting
from lmi_core.configuration.keys_without_effect import KEYS_WITHOUT_EFFECT
from lmi_core.configuration.properties import (
    OPTION_PREFIX,
    ModelProperties,
    RequestProperties,
    ServerProperties,
    check_engine,
    keys_of,
)
from lmi_core.embedding_backend import EmbeddingBackend
from lmi_core.errors import ConfigurationError
from lmi_core.formatter import FormatterNames
from lmi_core.host.devices import CPU, visible_gpus
from lmi_core.host.substitution import Substitution
from lmi_core.plugins.formatters import FormatterRegistry
from lmi_core.plugins.loading import Plugins
from lmi_core.plugins.registry import Registry
from lmi_core.script.formatters.model_code import ModelCode, load_code, unloaded_on_failure
from lmi_core.script.formatters.model_script import SCRIPT
from lmi_core.script.function.finding import describe_call, find_model_function
from lmi_core.script.function.runtime import ModelFunction
from lmi_core.script.function.setup import function_setup
from lmi_core.script.import_checks import script_warnings
from lmi_core.serving.backend_choice import choose_backend, foreign_keys, standing_in
from lmi_core.serving.formatter_choice import EVENTS, LINES, WHOLE, describe, resolve, resolve_chat
from lmi_core.serving_runtime import RuntimeSetup, ServingRuntime
from lmi_core.texts.chat_template import read_chat_template
from lmi_core.workers.replicas import ReplicaCount


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """The checked contents of a model directory; nothing is started."""

    name: str
    directory: Path
    configuration: Configuration
    server: ServerProperties
    options: RequestProperties
    backend: type[Backend[Any]] | None  # None: the model function serves the model
    runtime_reason: str  # why this backend was chosen, or how the model function is called, for people
    setup: RuntimeSetup[Any]
    formatters: FormatterNames
    chat_formatters: FormatterNames
    chat_template: str | None  # replaces the tokenizer's own
    code: ModelCode = field(default_factory=ModelCode)
    substitutions: tuple[Substitution, ...] = ()  # made by the backend; `RuntimeSetup` has those of its options
    version: str | None = None  # the only version that requests may name; None: any

    @property
    def runtime(self) -> type[ServingRuntime[Any]]:
        """The class that runs the model: its backend, or the model function."""
        return self.backend if self.backend is not None else ModelFunction

    @property
    def answer_schema(self) -> str | None:
        """The schema of answers on LMI's routes in words, with the reason for it; None for a model function."""
        return None if self.backend is None else describe(self.options)

    @property
    def served_by(self) -> str:
        """A description of the model's runtime, with the reason for its choice."""
        kind = "model function" if self.backend is None else f"backend {self.backend.name}"
        return f"{kind} ({self.runtime_reason})"

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that requests may use: those of `option.served_model_name`, then the model's own.

        With a version, `name:version` is a name too.
        """
        versioned = [] if self.version is None else [f"{self.name}:{self.version}"]
        return tuple(dict.fromkeys([*self.options.served_model_names, self.name, *versioned]))

    @property
    def configs(self) -> SimpleNamespace:
        """Every option with its effective value, as text, for the model's own code."""
        values = {each.key.removeprefix(OPTION_PREFIX): each.value for each in self.configuration.effective()}
        return SimpleNamespace(**values, model_dir=str(self.directory), model_id_or_path=values.get("model_id"))

    @property
    def fingerprint(self) -> str:
        """An identifier of this configuration and this version of the server; answers may differ between
        identifiers.
        """
        values = sorted((each.key, str(each.value)) for each in self.configuration.effective())
        engine = self.backend.name if self.backend is not None else None
        facts = repr((_server_version(), engine, self.chat_template, values))
        return "fp_" + hashlib.sha256(facts.encode(errors="backslashreplace")).hexdigest()[:10]

    @property
    def warnings(self) -> list[str]:
        """Warnings about keys and code with unexpected effects."""
        return [*self.configuration.warnings, *self.code.warnings()]


@cache  # reading it takes milliseconds, for each of perhaps a thousand models
def _server_version() -> str:
    return version("lmi-handlers")


OF_OTHER_ENGINES = ("embed", "score")  # tasks that DJLServing's other engines serve without Python code


def read_plan(
    name: str,
    directory: Path,
    environment: Mapping[str, str],
    plugins: Plugins,
    common: Iterable[Setting] = (),
    version: str | None = None,
    overrides: Iterable[Setting] = (),
) -> ModelPlan:
    """Read and check a model directory without importing an engine.

    Raise ConfigurationError with every problem. `common` are the server's keys for all models, and `overrides` the keys
    of the command line.
    """
    configuration = Configuration.read(directory, environment, common, overrides)
    try:
        plan = _plan(name, directory, configuration, plugins, version)
    except ConfigurationError as error:
        raise type(error)(_join_problems(configuration, error)) from error
    with unloaded_on_failure(plan.code):
        configuration.raise_errors()
    return plan


def _join_problems(configuration: Configuration, last: ConfigurationError) -> str:
    errors = "\n".join(configuration.errors)
    further = [] if last.message in (errors, *configuration.errors) else [last.message]
    return "\n".join([*configuration.errors, *further, *(f"warning: {each}" for each in configuration.warnings)])


def _plan(name: str, directory: Path, configuration: Configuration, plugins: Plugins, version: str | None) -> ModelPlan:
    server = configuration.load(ServerProperties)
    if server.reranking:
        configuration.imply("option.task", "reranking", "reranking")
    options = configuration.load(RequestProperties)
    configuration.warnings += worker_warnings(server)
    backend: type[Backend[Any]] | None = None
    substitutions: tuple[Substitution, ...] = ()
    with _further_problems(directory, configuration, options, plugins):
        script = find_model_function(directory, options)
        if script is None:
            options = choose_batching(server, options, configuration)
            options = drop_ignored(options, configuration)
            chosen, reason = choose_backend(options.rolling_batch, plugins.backends)
            backend, substitutions = standing_in(chosen, options.rolling_batch, server.ray_address)
            configuration.warnings += replica_warnings(server, backend)
            place_on_devices(server, backend, configuration)
        else:
            reason = describe_call(script, configuration, options)
    setup = _setup(directory, configuration, server, backend or ModelFunction, plugins.backends)
    setup = replace(setup, loading_timeout=options.model_loading_timeout)
    check_task(backend, setup.properties)
    if setup.properties.asked_task not in OF_OTHER_ENGINES:
        _check_engine(server.engine)
    code = ModelCode()
    if script is None:
        own_formatters = plugins.custom_formatters(options.output_formatter)
        code = load_code(directory, options, own_formatters, directory / setup.properties.adapters)
    with unloaded_on_failure(code):
        formatters, chat_formatters = _formatter_names(code, options, plugins.formatters)
        configuration.warnings += script_warnings(directory, options.script or SCRIPT, options.enable_venv)
        configuration.warnings += adapters_warnings(directory, setup.properties)
        if script is not None:
            setup = function_setup(setup, script, configuration, server, options)
        return ModelPlan(
            name=name,
            directory=directory,
            configuration=configuration,
            server=server,
            options=options,
            backend=backend,
            runtime_reason=reason,
            setup=setup,
            formatters=formatters,
            chat_formatters=chat_formatters,
            chat_template=read_chat_template(options.chat_template, directory),
            code=code,
            substitutions=substitutions,
            version=version,
        )


@contextmanager
def _further_problems(
    directory: Path, configuration: Configuration, options: RequestProperties, plugins: Plugins
) -> Iterator[None]:
    """If the runtime cannot be chosen, collect the problems that show all the same: an unknown backend, invalid values
    of the keys that all backends read and, if the backend is unknown, an unknown formatter and keys that none reads.
    """
    try:
        yield
    except ConfigurationError:
        known = _passes(lambda: choose_backend(options.rolling_batch, plugins.backends), configuration)
        configuration.load(ModelProperties)
        if not known:
            _check_formatter(directory, configuration, options, plugins)
            if configuration.has_unread:
                of_others = foreign_keys(ModelFunction, plugins.backends).keys() - KEYS_WITHOUT_EFFECT.keys()
                configuration.pass_through({key.removeprefix(OPTION_PREFIX) for key in of_others})
                configuration.explain_unread(KEYS_WITHOUT_EFFECT)
        raise


def _passes(check: Callable[[], object], configuration: Configuration) -> bool:
    """Return whether a check passes; its error joins those of the configuration."""
    try:
        check()
    except ConfigurationError as error:
        configuration.errors.append(error.message)
        return False
    return True


def _check_formatter(
    directory: Path, configuration: Configuration, options: RequestProperties, plugins: Plugins
) -> None:
    """Collect the error of an unknown output formatter, unless a script that is not loaded may define it."""
    name = options.output_formatter
    if name is None or name in plugins.formatter_functions or (directory / (options.script or SCRIPT)).is_file():
        return
    _passes(lambda: plugins.formatters.require(name, plugins.formatter_functions), configuration)


def _setup(
    directory: Path,
    configuration: Configuration,
    server: ServerProperties,
    runtime: type[ServingRuntime[Any]],
    backends: Registry[Backend[Any]],
) -> RuntimeSetup[Any]:
    """Load the runtime's own options, after which all keys are accounted for.

    Raise ConfigurationError if one is invalid.
    """
    properties = configuration.load(runtime.properties_type)
    arguments = configuration.pass_through(runtime.takes(configuration.undeclared_options()))
    configuration.explain_unread(foreign_keys(runtime, backends) if configuration.has_unread else {})
    configuration.raise_errors()
    return RuntimeSetup(
        directory,
        properties,
        arguments,
        server.retry_threshold,
        replicas=ReplicaCount(*server.workers(visible_gpus())),
        devices=server.devices,
        ray_address=server.ray_address,
        ray_shared=server.shares_on_ray,
        max_idle_time=server.max_idle_time,
    )


def _formatter_names(
    code: ModelCode, options: RequestProperties, formatters: FormatterRegistry
) -> tuple[FormatterNames, FormatterNames]:
    """Return the names of the formatters of answers and of chats, used without the model's own formatters.

    Raise PluginError for an unknown name.
    """
    options = code.base_options(options, formatters)
    names, chat_names = resolve(options, formatters), resolve_chat(options, formatters)
    for name in (names.whole, names.stream):
        formatters.require(name, code.base.available)
    for name in (chat_names.whole, chat_names.stream):
        if name not in formatters.of_chats:
            formatters.require(name, code.base.available)
    return names, chat_names


def _check_engine(engine: str) -> None:
    """Raise ConfigurationError for an engine that is not for models like this one."""
    try:
        check_engine(engine)
    except ValueError as error:
        raise ConfigurationError(
            f"engine {error}; its embedding models need option.task=text-embedding, "
            "and its rerankers option.task=reranking"
        ) from None


def check_task(backend: type[Backend[Any]] | None, properties: ModelProperties) -> None:
    """Raise ConfigurationError for a task that the backend does not support; model functions may do anything."""
    if properties.asked_task in OF_OTHER_ENGINES and backend is not None and not issubclass(backend, EmbeddingBackend):
        raise ConfigurationError(
            f"option.task={properties.task}: the {backend.name} backend makes no embeddings or scores; torch and vllm "
            "do"
        )


def choose_batching(
    server: ServerProperties, options: RequestProperties, configuration: Configuration
) -> RequestProperties:
    """Return the options with dynamic batching turned on if only `batch_size` requires it, as in LMI."""
    if server.batch_size == 1 or options.rolling_batch == "disable":
        return options
    if configuration.source("option.rolling_batch") != DEFAULT or options.asynchronous:
        configuration.warnings.append(
            f"batch_size={server.batch_size} has no effect: with rolling batch, requests join and leave one by one; "
            "option.rolling_batch=disable selects dynamic batching"
        )
        return options
    configuration.derive("option.rolling_batch", "disable", f"batch_size={server.batch_size}")
    return options.model_copy(update={"rolling_batch": "disable"})


def drop_ignored(options: RequestProperties, configuration: Configuration) -> RequestProperties:
    """Return the options without those that LMI's async mode ignores, because its schema has only one form."""
    if options.asynchronous is None:
        return options
    built_in = options.output_formatter in (WHOLE, LINES, EVENTS)
    ignored: dict[str, bool | None] = {"output_formatter": None} if built_in else {}
    ignored |= {name: False for name in ("tgi_compat", "enable_streaming") if getattr(options, name)}
    for name, value in ignored.items():
        configuration.warnings.append(
            f"{OPTION_PREFIX}{name}={str(getattr(options, name)).lower()} has no effect with {options.asynchronous}, "
            "whose schema has only one form: remove one of them"
        )
        configuration.derive(OPTION_PREFIX + name, str(value or "").lower(), options.asynchronous)
    return options.model_copy(update=ignored)


def adapters_warnings(directory: Path, properties: ModelProperties) -> list[str]:
    """Return a warning if the named adapters folder does not exist."""
    default = ModelProperties.model_fields["adapters"].default
    if properties.adapters == default or (directory / properties.adapters).is_dir():
        return []
    return [f"option.adapters={properties.adapters}: there is no such folder in the model directory"]


def worker_warnings(server: ServerProperties) -> list[str]:
    """Return a warning if the given maximum of engines or processes is less than the minimum, which then holds.

    It is no error: the two may come from different files and variables, and such directories have been served.
    """
    least, most = server.given_workers(visible_gpus())
    return [f"minWorkers={least} exceeds maxWorkers={most}, which has no effect"] if least > most else []


def replica_warnings(server: ServerProperties, backend: type[Backend[Any]]) -> list[str]:
    """Return a warning about several engines, or engines on a cluster, for a backend that cannot have them."""
    least, most = server.workers(visible_gpus())
    warnings = []
    if most > 1 and not backend.replicates:
        warnings.append(f"{least} to {most} workers: {backend.name} loads the model once, and batches all requests")
    if server.ray_address is not None and not backend.runs_on_ray:
        warnings.append(f"ray_address={server.ray_address} has no effect: {backend.name} runs on this host")
    if server.ray_shared and not server.shares_on_ray:
        warnings.append("ray_shared has no effect: it needs a cluster that other servers can use (ray_address)")
    elif server.ray_shared and not backend.shares_engines:
        warnings.append(f"ray_shared has no effect: the engines of {backend.name} belong to one server")
    return warnings


ON_DEVICES = "load_on_devices"
DEVICE = "option.device"


def place_on_devices(server: ServerProperties, backend: type[Backend[Any]], configuration: Configuration) -> None:
    """Set the backend's `option.device`; warn if the backend has no such option, or uses only one of several
    devices.
    """
    if not server.devices:
        return
    asked = f"{ON_DEVICES}={server.load_on_devices}"
    if not any(key.key == DEVICE for key in keys_of(backend.properties_type)):
        if backend.replicates and visible_gpus() and server.devices != (CPU,):
            return  # each of its engines gets its own device
        configuration.warnings.append(
            f"{configuration.source(ON_DEVICES)}: {asked} has no effect: the environment variable CUDA_VISIBLE_DEVICES "
            f"selects the devices of {backend.name}"
        )
        return
    first = server.devices[0]
    device = first if first == CPU else f"cuda:{first}"
    configuration.imply(DEVICE, device, ON_DEVICES)
    if len(server.devices) > 1 and not backend.replicates:
        configuration.warnings.append(
            f"{configuration.source(ON_DEVICES)}: {asked} means {device} alone: {backend.name} runs on one device"
        )

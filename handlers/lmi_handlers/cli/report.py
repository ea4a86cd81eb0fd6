"""Output of `lmi check`, `lmi plugins` and `lmi options`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lmi_core.configuration.options_document import example, markdown
from lmi_core.configuration.properties import ModelProperties, Properties, RequestProperties, ServerProperties
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.plugins.registry import origin
from lmi_core.remote.fetching import cached_directory
from lmi_core.remote.forecast import forecast
from lmi_core.serving.model import Model
from lmi_handlers.cli.serving import launch_plans, refuse_warnings
from lmi_handlers.container.declarations import Fate
from lmi_handlers.container.launch import Launch, read_launch
from lmi_handlers.container.search import Arguments
from lmi_handlers.djl.document import document

PIPED_WIDTH = 200  # characters; the width of a table that goes to a file or a pipe


def print_check(
    arguments: Arguments, plugins_directory: Path | None, environment: Mapping[str, str], *, strict: bool = False
) -> None:
    """Print what `lmi serve` would do. Raise ConfigurationError where it would not start, short of loading weights."""
    plugins = load_plugins(plugins_directory)
    console = _console()
    launch = read_launch(arguments, environment, fetch=cached_directory)
    _print_launch(console, launch)
    models = [Model(plan, plugins.formatters) for plan in launch_plans(launch, environment, plugins)]
    for model in models:
        _print_model(console, model)
    if strict:
        refuse_warnings([*launch.warnings, *(warning for model in models for warning in model.warnings)])


def print_plugins(plugins_directory: Path | None) -> None:
    plugins = load_plugins(plugins_directory)
    table = _table("kind", "name", "from")
    for kind, registry in _kinds(plugins).items():
        for plugin in sorted(registry, key=lambda plugin: plugin.name):
            name = ", ".join((plugin.name, *getattr(plugin, "aliases", ())))
            table.add_row(kind, name, origin(plugin))
    for function in plugins.formatter_functions.values():
        table.add_row("output formatter", function.name, origin(function.function))
    _console().print(table)


def print_options(as_markdown: bool, plugins_directory: Path | None) -> None:
    types = option_types(load_plugins(plugins_directory))
    print(markdown(types) if as_markdown else example(types), end="")


def print_coming_from_djl(plugins_directory: Path | None) -> None:
    print(document(load_plugins(plugins_directory)), end="")


def option_types(plugins: Plugins) -> dict[str, type[Properties]]:
    """Return the types that declare options, by the headings for the printed groups."""
    types: dict[str, type[Properties]] = {
        "Model server": ServerProperties,
        "Requests and answers": RequestProperties,
        "Every backend": ModelProperties,
    }
    backends = sorted(plugins.backends, key=lambda backend: backend.name)
    return types | {f"Backend {backend.name}": backend.properties_type for backend in backends}


def _kinds(plugins: Plugins) -> dict[str, list[Any]]:
    return {
        "backend": list(plugins.backends),
        "output formatter": list(plugins.formatters),
        "handler": list(plugins.handlers),
    }


def _print_launch(console: Console, launch: Launch) -> None:
    console.print("server:")
    for warning in launch.warnings:
        console.print(f"  warning: {warning}")
    table = _table("setting", "value", "from", "what becomes of it")
    for given in launch.address:
        table.add_row(given.name, given.value, given.source, Fate.HONOURED.value)
    for model in launch.models:
        version = f":{model.version}" if model.version else ""
        table.add_row("model", f"{model.name}{version}={model.directory}", model.source, Fate.HONOURED.value)
    if launch.config_file is not None:
        table.add_row("config file", str(launch.config_file), "-f, or MODEL_SERVER_HOME", Fate.HONOURED.value)
    for fate, given in launch.settings.shown:
        table.add_row(given.name, given.value, given.source, fate)
    for given in launch.settings.for_models:
        table.add_row(given.name, given.value, given.source, "honoured, by models that do not have it themselves")
    console.print(table)


def _print_model(console: Console, model: Model) -> None:
    plan = model.plan
    console.print(f"model {plan.name}: {plan.directory}")
    if plan.backend is None:
        console.print(f"  model function: {plan.runtime_reason}")
    else:
        console.print(f"  backend: {plan.backend.name} ({plan.runtime_reason})")
    console.print(f"  output formatter: {plan.formatters.whole}; {plan.formatters.stream} for streams")
    for line in plan.code.descriptions():
        console.print(f"  {line}")
    for option, remote in plan.runtime.downloads(plan.setup).items():
        console.print(f"  option.{option}: {forecast(remote, os.environ)}")
    for warning in model.warnings:
        console.print(f"  warning: {warning}")
    table = _table("option", "value", "from")
    for effective in plan.configuration.effective():
        table.add_row(effective.key, effective.value, effective.source)
    console.print(table)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=PIPED_WIDTH)

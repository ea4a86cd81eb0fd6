"""What `lmi check`, `lmi plugins` and `lmi options` print."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lmi_core.model import Model, ModelPlan
from lmi_core.options_document import example, markdown
from lmi_core.plugins import Plugins, load_plugins
from lmi_core.properties import HandlerProperties, ModelProperties, Properties, ServerProperties
from lmi_core.registry import origin
from lmi_core.remote.forecast import forecast
from lmi_handlers.serving import read_plans

PIPED_WIDTH = 200  # characters; a table that goes to a file or a pipe is not folded to a terminal


def print_check(directory: Path, plugins_directory: Path | None, environment: Mapping[str, str]) -> None:
    """Raises ConfigurationError for whatever would keep `lmi serve` from starting, short of loading the weights."""
    plugins = load_plugins(plugins_directory)
    console = _console()
    for plan in read_plans(directory, environment, plugins):
        Model(plan, plugins)
        _print_plan(console, plan)


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


def option_types(plugins: Plugins) -> dict[str, type[Properties]]:
    """Who declares options, and the type that does, by the heading that a person reads."""
    types: dict[str, type[Properties]] = {
        "Model server": ServerProperties,
        "Requests and answers": HandlerProperties,
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


def _print_plan(console: Console, plan: ModelPlan) -> None:
    console.print(f"model {plan.name}: {plan.directory}")
    console.print(f"  backend: {plan.backend.name} ({plan.backend_reason})")
    console.print(f"  output formatter: {plan.formatters.whole}; {plan.formatters.stream} for streams")
    for line in plan.code.descriptions():
        console.print(f"  {line}")
    for option, model in plan.backend.downloads(plan.setup).items():
        console.print(f"  option.{option}: {forecast(model, os.environ)}")
    for warning in [*plan.configuration.warnings, *plan.code.warnings()]:
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

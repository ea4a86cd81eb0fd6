"""Output of `lmi plugins` and `lmi options`, and how `lmi` prints tables."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lmi_core.configuration.options_document import example, markdown
from lmi_core.configuration.properties import ModelProperties, Properties, RequestProperties, ServerProperties
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.plugins.registry import origin
from lmi_handlers.djl.document import document

PIPED_WIDTH = 200  # characters; the width of a table that goes to a file or a pipe


def print_plugins(plugins_directory: Path | None) -> None:
    plugins = load_plugins(plugins_directory)
    rows = table("kind", "name", "from")
    for kind, registry in _kinds(plugins).items():
        for plugin in sorted(registry, key=lambda plugin: plugin.name):
            name = ", ".join((plugin.name, *getattr(plugin, "aliases", ())))
            rows.add_row(kind, name, origin(plugin))
    for function in plugins.formatter_functions.values():
        rows.add_row("output formatter", function.name, origin(function.function))
    new_console().print(rows)


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


def table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def new_console() -> Console:
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=PIPED_WIDTH)

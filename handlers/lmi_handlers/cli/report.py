"""The output of `lmi plugins` and `lmi options`, and tables of `lmi`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lmi_core.configuration.properties import (
    DeclaredKey,
    ModelProperties,
    Properties,
    RequestProperties,
    ServerProperties,
    keys_of,
)
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.plugins.registry import origin

EXAMPLE_HEADING = """\
# Every key with its default. Remove the # in front of a key to set it.
# Other option.* keys that are arguments of the chosen engine are passed through to it.
"""
PIPED_WIDTH = 200  # characters; the width of a table written to a file or a pipe


def print_plugins(plugins_directory: Path | None) -> None:
    plugins = load_plugins(plugins_directory)
    rows = table("kind", "name", "from")
    kinds: dict[str, Iterable[Any]] = {
        "backend": plugins.backends,
        "output formatter": plugins.formatters,
        "handler": plugins.handlers,
    }
    for kind, registry in kinds.items():
        for plugin in sorted(registry, key=lambda plugin: plugin.name):
            name = ", ".join((plugin.name, *getattr(plugin, "aliases", ())))
            rows.add_row(kind, name, origin(plugin))
    for function in plugins.formatter_functions.values():
        rows.add_row("output formatter", function.name, origin(function.function))
    new_console().print(rows)


def print_options(plugins_directory: Path | None) -> None:
    print(example(option_types(load_plugins(plugins_directory))), end="")


def example(types: Mapping[str, type[Properties]]) -> str:
    """Return a `serving.properties` with every key commented out at its default."""
    return EXAMPLE_HEADING + "".join(
        f"\n# == {section} ==\n" + "".join(f"\n# {key.help}\n#{key.key}={key.default}\n" for key in keys)
        for section, keys in option_sections(types)
    )


def option_sections(types: Mapping[str, type[Properties]]) -> Iterator[tuple[str, list[DeclaredKey]]]:
    """Yield the keys that each type adds or changes; unchanged inherited ones appear only with its base."""
    for section, properties_type in types.items():
        bases = [base for base in types.values() if base is not properties_type and issubclass(properties_type, base)]
        inherited = {key for base in bases for key in keys_of(base)}
        if keys := [key for key in keys_of(properties_type) if key not in inherited]:
            yield section, keys


def option_types(plugins: Plugins) -> dict[str, type[Properties]]:
    """Return the types that declare options, by the headings for the printed groups."""
    types: dict[str, type[Properties]] = {
        "Model server": ServerProperties,
        "Requests and answers": RequestProperties,
        "Every backend": ModelProperties,
    }
    backends = sorted(plugins.backends, key=lambda backend: backend.name)
    return types | {f"Backend {backend.name}": backend.properties_type for backend in backends}


def table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def new_console() -> Console:
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=PIPED_WIDTH)

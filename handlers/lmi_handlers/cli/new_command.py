"""`lmi new`: templates of a formatter, a backend and a handler, each with its test, as files or as a package."""

import importlib.util
import keyword
from collections.abc import Mapping
from datetime import date
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from lmi_core.errors import ConfigurationError
from lmi_core.plugins.loading import load_plugins
from lmi_core.plugins.registry import Registry

FORMATTER = "formatter"
HANDLER = "handler"
BACKEND = "backend"

TYPED_IMPORTS = """\
from collections.abc import Callable
from typing import Any

from lmi import GenerationOutput, hookimpl, output_formatter
"""
USES = {
    FORMATTER: "`option.output_formatter=$name` in its serving.properties",
    HANDLER: "nothing more: clients send requests to `/$name/MODEL`",
    BACKEND: "`option.rolling_batch=$name` in its serving.properties",
}


def write_new(kind: str, name: str, parent: Path, *, package: bool = False) -> str:
    """Write the folder `name` and return the next steps. Raise ConfigurationError if it cannot be written."""
    if not name.isidentifier() or not name.islower():
        raise ConfigurationError(
            f"{name} is not a valid name for a {kind}: use lower-case letters, digits and underscores"
        )
    if keyword.iskeyword(name):
        raise ConfigurationError(f"{name} is not a valid name for a {kind}: it is a Python keyword")
    plugins = load_plugins()
    registries: Mapping[str, Registry[Any]] = {
        FORMATTER: plugins.formatters,
        HANDLER: plugins.handlers,
        BACKEND: plugins.backends,
    }
    if name in registries[kind] or (kind == FORMATTER and name in plugins.formatter_functions):
        raise ConfigurationError(f"the {kind} `{name}` already exists (see lmi plugins): choose another name")
    if package and importlib.util.find_spec(name) is not None:
        raise ConfigurationError(f"a Python package or module `{name}` already exists: choose another name")
    folder = parent / name
    if folder.exists():
        raise ConfigurationError(f"{folder} already exists")
    for path, text in (_package(kind, name) if package else _folder(kind, name)).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return _next_steps(kind, folder, package=package)


def _folder(kind: str, name: str) -> dict[str, str]:
    """Return the files of a model directory that contains the plugin, by path."""
    plugin = "" if kind == FORMATTER else f', plugins=[HERE / "plugins" / "{name}.py"]'
    return {
        "model.py" if kind == FORMATTER else f"plugins/{name}.py": _fill(kind, name),
        f"test_{name}.py": _fill(f"{kind}_test", name, served=f"HERE{plugin}"),
        "serving.properties": _fill(f"{kind}_properties", name),
    }


def _package(kind: str, name: str) -> dict[str, str]:
    """Return the files of a Python package that contains the plugin, by path."""
    further = {
        "project": name.replace("_", "-"),
        "kind": kind,
        "version": version("lmi-handlers"),
        "year": str(date.today().year),
        "route": _route(kind, name),
        "real": " --real" if kind == BACKEND else "",
        "use": Template(USES[kind]).substitute(name=name),
    }
    code, properties = _fill(kind, name), _fill(f"{kind}_properties", name)
    if kind == FORMATTER:
        code = code.replace("from lmi import GenerationOutput, output_formatter\n", TYPED_IMPORTS)
        code = code.replace(": `lmi try .` shows them", "") + _fill("formatter_hook", name)
        properties += f"option.output_formatter={name}\n"
    return {
        f"src/{name}/__init__.py": code,
        f"src/{name}/py.typed": "",
        f"tests/test_{name}.py": _fill(f"{kind}_test", name, served='HERE / "model"'),
        "tests/model/serving.properties": properties,
        "pyproject.toml": _fill("pyproject", name, **further),
        "README.md": _fill("readme", name, **further),
        "LICENSE": _fill("license", name, **further),
        ".gitignore": "__pycache__/\ndist/\n",
    }


def _fill(template: str, name: str, **further: str) -> str:
    text = files("lmi_handlers.cli").joinpath("templates", f"{template}.txt").read_text()
    names: Mapping[str, str] = {"name": name, "class_name": "".join(part.title() for part in name.split("_"))}
    return Template(text).substitute(names, **further)


def _route(kind: str, name: str, model: str = "model") -> str:
    return f" --route /{name}/{model}" if kind == HANDLER else ""


def _next_steps(kind: str, folder: Path, *, package: bool) -> str:
    model = folder / "tests" / "model" if package else folder
    route, real = _route(kind, folder.name, model.name), " --real" if kind == BACKEND else ""
    if package:
        return (
            f"Created the package {folder}, under the MIT licence. Next:\n"
            f"  pip install --editable '{folder}[testing]'\n"
            f"  pytest {folder}\n"
            f"  lmi try {model}{route}{real}\n"
            f"  lmi serve {model}"
        )
    plugins = "" if kind == FORMATTER else f" --plugins-dir {folder / 'plugins'}"
    return (
        f"Created {folder}. Next:\n"
        f"  pytest {folder}          # its test; needs pip install 'lmi-handlers[testing]'\n"
        f"  lmi try {folder}{route}{plugins}{real} --watch\n"
        f"  lmi serve {folder}{plugins}"
    )

"""`lmi new`: templates of a formatter, a backend and a handler, each with its test."""

from importlib.resources import files
from pathlib import Path
from string import Template

from lmi_core.errors import ConfigurationError

FORMATTER = "formatter"
HANDLER = "handler"
BACKEND = "backend"


def write_new(kind: str, name: str, parent: Path) -> str:
    """Write the folder `name` and return the next steps. Raise ConfigurationError where it cannot be written."""
    if not name.isidentifier() or not name.islower():
        raise ConfigurationError(
            f"{name} is not a valid name for a {kind}: use lower-case letters, digits and underscores"
        )
    folder = parent / name
    if folder.exists():
        raise ConfigurationError(f"{folder} already exists")
    code = Path("model.py") if kind == FORMATTER else Path("plugins", f"{name}.py")
    written = {code: kind, Path(f"test_{name}.py"): f"{kind}_test"}
    for path, template in (written | {Path("serving.properties"): f"{kind}_properties"}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(_filled(template, name))
    return _next_steps(kind, folder)


def _filled(template: str, name: str) -> str:
    text = files("lmi_handlers.cli").joinpath("templates", f"{template}.txt").read_text()
    return Template(text).substitute(name=name, class_name="".join(part.title() for part in name.split("_")))


def _next_steps(kind: str, folder: Path) -> str:
    plugins = "" if kind == FORMATTER else f" --plugins-dir {folder / 'plugins'}"
    route = f" --route /{folder.name}/{folder.name}" if kind == HANDLER else ""
    real = " --real" if kind == BACKEND else ""
    return "\n".join(
        [
            f"Created {folder}. Next:",
            f"  pytest {folder}          # its test; needs pip install lmi-handlers[testing]",
            f"  lmi try {folder}{route}{plugins}{real} --watch",
            f"  lmi serve {folder}{plugins}",
        ]
    )

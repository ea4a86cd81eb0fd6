"""The modules of DJLServing's Python package that exist here, and the reasons for missing ones."""

import importlib
import pkgutil
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PACKAGE = "djl_python"
OWN = f"{PACKAGE}.services"  # under no name of DJLServing's
_MISSING = tomllib.loads(Path(__file__).with_name("missing.toml").read_text("utf-8"))
MISSING_MODULES: Mapping[str, str] = {f"{PACKAGE}.{name}": reason for name, reason in _MISSING["modules"].items()}
MISSING_PACKAGES: Mapping[str, str] = _MISSING["packages"]


@cache
def present_modules() -> tuple[str, ...]:
    """Return the names of the modules that exist here, the package first."""
    package = importlib.import_module(PACKAGE)
    names = [each.name for each in pkgutil.walk_packages(package.__path__, f"{PACKAGE}.")]
    return PACKAGE, *(name for name in names if not name.startswith(OWN))


def why_missing(module: str) -> str | None:
    """Return why a module of DJLServing's package or an engine's package is missing; None for other packages."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if (reason := MISSING_MODULES.get(name) or MISSING_PACKAGES.get(name)) is not None:
            return reason
    if parts[0] != PACKAGE:
        return None
    known = ", ".join(name.removeprefix(f"{PACKAGE}.") for name in present_modules()[1:])
    return f"there is no such module. {PACKAGE} has: {known}"

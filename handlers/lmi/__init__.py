"""The public interface of LMI handlers for authors of formatters, backends, dialects and tests.

Other names of this project may change at any time; for these, see the promise in CONTRIBUTING.md.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def _homes() -> dict[str, str]:
    """Return the module that defines each public name, from the stub next to this file."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(found.module) for found in imports for alias in found.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Return a public name, importing its module on first use: `import lmi` itself takes milliseconds."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "testing"]

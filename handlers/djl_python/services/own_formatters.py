"""The formatters in a file whose function generates with a service."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from lmi_core.decorators import INPUT_MARK, OUTPUT_MARK


def own_formatters(directory: Path) -> dict[str, Callable[..., Any]]:
    """Return the decorated formatters of the directory's imported files, by the property that selects each."""
    found: dict[str, Callable[..., Any]] = {}
    for module in _modules(directory.resolve()):
        for value in vars(module).values():
            if not callable(value) or isinstance(value, type):
                continue
            for mark, name in ((INPUT_MARK, "input_formatter"), (OUTPUT_MARK, "output_formatter")):
                if getattr(value, mark, None):
                    found.setdefault(name, value)
    return found


def _modules(directory: Path) -> Iterator[ModuleType]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).parent == directory:
            yield module

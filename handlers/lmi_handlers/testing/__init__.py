"""Fixtures and types for tests of formatters, handlers and backends, also exported as `lmi.testing`.

When installed, the plugin adds the fixtures `model_dir`, `serve` and `golden` to pytest; otherwise, put `pytest_plugins
= ["lmi_handlers.testing"]` into a test or a conftest.py. (PYTEST_DONT_REWRITE: tests import this module before pytest
does.)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lmi_handlers.testing import plugin
from lmi_handlers.testing.plugin import (
    Golden,
    ModelDirectory,
    PlainServe,
    Serve,
    golden,
    model_dir,
    serve,
)

if TYPE_CHECKING:
    from lmi_handlers.testing.answers import WRITE_VARIABLE, Answer, transcript
    from lmi_handlers.testing.plain import PlainServer, plain_server
    from lmi_handlers.testing.servers import RunningServer, Scripted, running_server

lmi_servers_in_loop = getattr(plugin, plugin.IN_LOOP, None)  # used by `serve` if pytest-asyncio is installed

SCRIPTED = "option.rolling_batch=scripted\n"  # serving.properties of a model that needs no weights

__all__ = [
    "SCRIPTED",
    "WRITE_VARIABLE",
    "Answer",
    "Golden",
    "ModelDirectory",
    "PlainServe",
    "PlainServer",
    "RunningServer",
    "Scripted",
    "Serve",
    "golden",
    "model_dir",
    "plain_server",
    "running_server",
    "serve",
    "transcript",
]

# Imported on first use, because pytest imports this module every time it starts.
_LATER = {
    "WRITE_VARIABLE": "answers",
    "Answer": "answers",
    "PlainServer": "plain",
    "RunningServer": "servers",
    "Scripted": "servers",
    "plain_server": "plain",
    "running_server": "servers",
    "transcript": "answers",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)

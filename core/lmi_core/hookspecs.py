"""The hooks of a plugin, each called once at start-up."""

from collections.abc import Callable
from typing import Any

import pluggy

from lmi_core.backend import Backend
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Handler

hookspec = pluggy.HookspecMarker("lmi")
hookimpl = pluggy.HookimplMarker("lmi")  # the decorator of a plugin's hooks


@hookspec
def lmi_register_backends(register: Callable[[type[Backend[Any]]], None]) -> None:
    """Register backends by unique name."""


@hookspec
def lmi_register_formatters(register: Callable[[type[OutputFormatter] | Callable[..., Any]], None]) -> None:
    """Register output formatters (classes or functions) by unique name."""


@hookspec
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    """Register API dialects by unique name."""

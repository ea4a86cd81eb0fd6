"""The registry of backends, whose classes are checked when they are registered."""

import inspect
from collections.abc import Iterator
from typing import Any

from lmi_core.backend import Backend
from lmi_core.configuration.properties import ModelProperties
from lmi_core.errors import PluginError
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.payloads.payload import shown
from lmi_core.plugins.registry import Registry, origin
from lmi_core.text_backend.backend import TextBackend

AWAITED = ("start", "stop", "health")
TYPES = {"properties_type": ModelProperties, "parameters_type": GenerationParameters}


class BackendRegistry(Registry[Backend[Any]]):
    """The backends that `option.rolling_batch` may name."""

    def __init__(self) -> None:
        super().__init__("backend", Backend)

    def check(self, plugin: type[Backend[Any]]) -> None:
        if isinstance(plugin, type) and issubclass(plugin, Backend):
            faults = [*_wrong_types(plugin), *_wrong_methods(plugin)]
            if not faults and issubclass(plugin, TextBackend):
                faults = [*_unknown_parameters(plugin)]
            if faults:
                raise PluginError("\n".join(f"the backend {origin(plugin)}: {fault}" for fault in faults))
        super().check(plugin)


def _wrong_types(plugin: type[Backend[Any]]) -> Iterator[str]:
    for attribute, base in TYPES.items():
        found = getattr(plugin, attribute, base)
        if not (isinstance(found, type) and issubclass(found, base)):
            yield f"`{attribute}` must be a subclass of lmi.{base.__name__}. Given: {shown(found)}"


def _unknown_parameters(plugin: type[TextBackend[Any]]) -> Iterator[str]:
    known = plugin.parameters_type.model_fields
    for name in plugin.obeyed_parameters:
        if name not in known:
            yield (
                "`obeyed_parameters` must contain names of fields of `parameters_type`. "
                f"Given: {shown(name)}.{did_you_mean(name, known)}"
            )


def _wrong_methods(plugin: type[Backend[Any]]) -> Iterator[str]:
    for name in AWAITED:
        if inspect.isgeneratorfunction(found := getattr(plugin, name)) or inspect.isasyncgenfunction(found):
            yield f"`{name}` must not yield: it is an `async def` that returns"
        elif not inspect.iscoroutinefunction(found):
            yield f"`{name}` must be an `async def`"
    generate, arguments = plugin.generate, _arguments(plugin)
    if inspect.iscoroutinefunction(generate):
        yield "`generate` must be a generator: it has no `yield`"
    if inspect.isgeneratorfunction(generate) and not issubclass(plugin, TextBackend):
        yield "`generate` must be an asynchronous generator: write `async def`"
    try:
        inspect.signature(generate).bind(None, *arguments)
    except TypeError:
        yield f"`generate` must take {', '.join(('self', *arguments))}. Given: generate{inspect.signature(generate)}"


def _arguments(plugin: type[Backend[Any]]) -> tuple[str, ...]:
    return ("prompt", "parameters") if issubclass(plugin, TextBackend) else ("request",)

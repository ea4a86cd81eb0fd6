"""The script with a `handle` function, loaded in a process of its own."""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from lmi_core.script.inputs import Input
from lmi_core.script.tracebacks import own_traceback

logger = logging.getLogger(__name__)

REGISTER_ADAPTER = "register_adapter"
ADAPTER_FUNCTIONS = (REGISTER_ADAPTER, "update_adapter", "unregister_adapter")


class HandlerScript:
    """Its process is one model's alone: the script's folder is on the import path, and is the working directory."""

    def __init__(self, path: Path, function: str, properties: Mapping[str, str]) -> None:
        self._path = path
        self._handle = function
        self._properties = properties
        self._module = ModuleType("not loaded")

    def load(self, adapters: Mapping[str, str]) -> Iterator[Any]:
        """Import the script, make the call without content in which handlers load their models, register adapters.

        What a call returned is to be looked at before the next one is made.
        """
        os.chdir(self._path.parent)
        sys.path.insert(0, str(self._path.parent))
        self._module = import_module(self._path.stem)
        yield self.call(self._handle, Input())
        if REGISTER_ADAPTER in self.functions:
            for name, folder in adapters.items():
                inputs = Input()
                inputs.properties = {"name": name, "src": folder}
                yield self.call(REGISTER_ADAPTER, inputs)

    @property
    def concurrent(self) -> bool:
        """Whether the function can take a request while it works on others."""
        function = self._function(self._handle)
        return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)

    @property
    def functions(self) -> list[str]:
        names = (self._handle, *ADAPTER_FUNCTIONS)
        return [name for name in names if callable(getattr(self._module, name, None))]

    def call(self, name: str, inputs: Input) -> Any:
        """Raises whatever the function does."""
        for each in {id(each): each for each in (inputs, *inputs.get_batches())}.values():
            each.function_name = name
            each.properties = {**self._properties, **each.properties}
        return self._function(name)(inputs)

    def log(self, error: BaseException, inputs: Input) -> None:
        ids = ", ".join(each.get_property("x-request-id") or "?" for each in inputs.get_batches())
        words = self.name_of(inputs.function_name or self._handle)
        logger.error("request %s: %s\n%s", ids, words, own_traceback(error, self._path.parent))

    def name_of(self, function: str) -> str:
        return f"{function} in {self._path.name} raised"

    def _function(self, name: str) -> Callable[[Input], Any]:
        if not hasattr(self._module, name) and name not in ADAPTER_FUNCTIONS:
            from lmi_core.script.services.predictor import adopt_prediction_handler  # which most handlers do without

            adopt_prediction_handler(self._module, name)
        function: Callable[[Input], Any] | None = getattr(self._module, name, None)
        if not callable(function):
            found = [name for name, value in vars(self._module).items() if inspect.isfunction(value)]
            raise AttributeError(f"there is no function `{name}`; the file has: {', '.join(found) or 'none'}")
        return function

"""The script of a model function, loaded in its own process; a prediction handler in it becomes such a function."""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from lmi_core.decorators import INIT_MARK, INPUT_MARK, OUTPUT_MARK, PREDICTION_MARK
from lmi_core.script.djl_names.encode_decode import decode
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output
from lmi_core.script.formatters.contracts import InputContract, read_input_contract
from lmi_core.script.tracebacks import own_traceback

logger = logging.getLogger(__name__)

REGISTER_ADAPTER = "register_adapter"
MODEL_DIRECTORY = "model_dir"
ADAPTER_FUNCTIONS = (REGISTER_ADAPTER, "update_adapter", "unregister_adapter")


class FunctionScript:
    """A script in its own process, with its folder on the import path and as the working directory."""

    def __init__(self, path: Path, function: str, properties: Mapping[str, str]) -> None:
        self.path = path
        self.function = function
        self.initialization_error: str | None = None  # until a request succeeds nevertheless
        self._properties = properties
        self._module = ModuleType("not loaded")

    def load(self) -> None:
        """Import the script. Raise whatever the script raises."""
        os.chdir(self.path.parent)
        sys.path.insert(0, str(self.path.parent))
        self._module = import_module(self.path.stem)

    @property
    def concurrent(self) -> bool:
        """Whether the function can process several requests concurrently."""
        function = self._function(self.function)
        return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)

    def has(self, name: str) -> bool:
        return callable(getattr(self._module, name, None))

    def call(self, name: str, inputs: Input) -> Any:
        """Call a function of the script. Raise whatever the function raises."""
        for each in {id(each): each for each in (inputs, *inputs.get_batches())}.values():
            each.function_name = name
            each.properties = self._with_own(each.properties)
        return self._function(name)(inputs)

    def log(self, error: BaseException, requests: Iterable[Input], function: str) -> None:
        ids = ", ".join(each.get_property("x-request-id") or "?" for each in requests)
        logger.error("request %s: %s\n%s", ids, self.name_of(function), own_traceback(error, self.path.parent))

    def name_of(self, function: str) -> str:
        return f"{function} in {self.path.name} raised"

    def note(self, error: BaseException) -> str:
        """Return an earlier failure of the initialization, to add to a different error of a call, or ""."""
        if self.initialization_error in (None, description(error)):
            return ""
        return f" (when it was loaded, it raised {self.initialization_error})"

    def _with_own(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the model's properties, overridden by the request's except for those that affect loading."""
        if self.initialization_error is not None:  # then the function may load its model with this request
            return {**self._properties, **given, **self._properties}
        own = {name: value for name, value in self._properties.items() if name == MODEL_DIRECTORY}
        return {**self._properties, **given, **own}

    def _function(self, name: str) -> Callable[[Input], Any]:
        if not hasattr(self._module, name) and name not in ADAPTER_FUNCTIONS:
            predict = _find(self._module, PREDICTION_MARK)
            if predict is not None:
                others = [_find(self._module, mark) for mark in (INIT_MARK, INPUT_MARK, OUTPUT_MARK)]
                setattr(self._module, name, Predictor(predict, *others).handle)
        function: Callable[[Input], Any] | None = getattr(self._module, name, None)
        if not callable(function):
            found = [name for name, value in vars(self._module).items() if inspect.isfunction(value)]
            raise AttributeError(f"there is no function `{name}`. The file has: {', '.join(found) or 'none'}")
        return function


def description(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


Function = Callable[..., Any]

PIPELINES = "djl_python.huggingface"  # its service loads models without an init handler


class Predictor:
    """A model function that calls the prediction handler with each request's data and the model, and writes its result.

    The model is the result of the init handler; without one, it is the model directory's model as a pipeline:
    `model(prompts, **parameters)` returns an object with `generated_text` for each prompt.
    """

    def __init__(self, predict: Function, init: Function | None, read: Function | None, write: Function | None) -> None:
        self._predict = predict
        self._init = init
        self._read = read
        self._write = write
        self._model: Any = None
        self._loaded = False

    def handle(self, inputs: Input) -> Output | None:
        if not self._loaded:
            self._model = self._load(inputs)
            self._loaded = True
        if inputs.is_empty():
            return None
        output = Output()
        batch = inputs.get_batches()
        for index, item in enumerate(batch):
            result = self._predict(self._data(item), self._model)
            answer = self._write(result) if self._write is not None else result
            if isinstance(answer, Output) and len(batch) == 1:
                return answer
            output.add(answer, key="data", batch_index=index if len(batch) > 1 else None)
        return output

    def _load(self, inputs: Input) -> Any:
        if self._init is not None:
            return self._init(inputs.get_property("model_dir") or str(Path.cwd()))
        service = import_module(PIPELINES).HuggingFaceService()
        service.initialize(inputs.get_properties())
        return service.hf_pipeline

    def _data(self, item: Input) -> Any:
        if self._read is not None and read_input_contract(self._read).contract is InputContract.INPUT_ITEM:
            return self._read(item)
        body = decode(item, item.get_property("Content-Type"))
        if self._read is not None:
            return self._read(body)
        return body.get("inputs", body) if isinstance(body, dict) else body


def _find(module: ModuleType, mark: str) -> Function | None:
    return next((each for each in vars(module).values() if callable(each) and getattr(each, mark, None)), None)

"""A model function that consists of the prediction handler, the init handler and the formatters in a model.py."""

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from lmi_core.decorators import INIT_MARK, INPUT_MARK, OUTPUT_MARK, PREDICTION_MARK
from lmi_core.script.djl_names.encode_decode import decode
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output
from lmi_core.script.formatters.contracts import InputContract, read_input_contract

Function = Callable[..., Any]

PIPELINES = "djl_python.huggingface"  # its service loads models without an init handler


def adopt_prediction_handler(module: ModuleType, name: str) -> None:
    """Add a function of that name to a module with a prediction handler."""
    predict = _find(module, PREDICTION_MARK)
    if predict is not None:
        predictor = Predictor(predict, _find(module, INIT_MARK), _find(module, INPUT_MARK), _find(module, OUTPUT_MARK))
        setattr(module, name, predictor.handle)


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
        service = importlib.import_module(PIPELINES).HuggingFaceService()
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

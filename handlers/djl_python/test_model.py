"""`TestHandler`: a model function without a server; also `python -m djl_python.test_model`."""

import argparse
import asyncio
import importlib.util
import inspect
import json
import mimetypes
import os
import sys
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from lmi_core.configuration import java_properties
from lmi_core.configuration.model_directory import PROPERTIES_FILE
from lmi_core.configuration.properties import OPTION_PREFIX, Properties, RequestProperties, ServerProperties, keys_of
from lmi_core.logs.logs import configure_logging
from lmi_core.plugins.loading import load_plugins
from lmi_core.script.djl_names.inputs import Input, batch_of
from lmi_core.script.djl_names.nd_list import to_nd_list, to_npz
from lmi_core.script.djl_names.outputs import EncodedChunk, Output
from lmi_core.script.function.answers import answer_of

__all__ = [
    "TestHandler",
    "create_concurrent_batch_request",
    "create_json_request",
    "create_npz_request",
    "create_numpy_request",
    "create_request",
    "create_text_request",
    "decode_encoded_output_binary",
    "extract_output_as_bytes",
    "extract_output_as_input",
    "extract_output_as_npz",
    "extract_output_as_numpy",
    "extract_output_as_string",
    "load_properties",
    "run",
    "update_properties_with_env_vars",
]

ENVIRONMENT_PREFIX = "OPTION_"
KEY_CASES = {"entrypoint": "entryPoint"}
TENSOR_TYPES = {".ndlist": "tensor/ndlist", ".npz": "tensor/npz"}


class TestHandler:
    """The `handle` of a module, or of a file in a model directory, called as the server does."""

    __test__: ClassVar[bool] = False  # keeps pytest from collecting it as a class of tests

    def __init__(self, entry_point: str | ModuleType, model_dir: str | None = None) -> None:
        self.serving_properties = update_properties_with_env_vars(load_properties(model_dir))
        if model_dir is not None:
            self.serving_properties["model_dir"] = str(Path(model_dir).resolve())
        self.module = entry_point if isinstance(entry_point, ModuleType) else _load(entry_point, Path(model_dir or "."))

    def inference(self, inputs: Input) -> Output:
        """Call the function; return its answer, or raise what it raises."""
        name = inputs.get_function_name() or self.serving_properties.get("handler") or "handle"
        for each in {id(each): each for each in (inputs, *inputs.get_batches())}.values():
            each.function_name = name
            each.properties = {**self.serving_properties, **each.properties}
        function = getattr(self.module, name, None)
        if not callable(function):
            raise AttributeError(f"{self.module.__name__} has no function `{name}`")
        return answer_of(_wait(function(inputs)))

    def inference_batch(
        self,
        inputs: Sequence[Any],
        properties: Sequence[Mapping[str, str]] | None = None,
        serving_properties: Mapping[str, str] | None = None,
    ) -> Output:
        """Return the answer to a dynamic batch of JSON bodies, each with its properties."""
        return self.inference(create_concurrent_batch_request(inputs, properties, serving_properties))

    def inference_rolling_batch(
        self,
        inputs: Sequence[Any],
        properties: Sequence[Mapping[str, str]] | None = None,
        serving_properties: Mapping[str, str] | None = None,
    ) -> dict[int, str]:
        """Call a rolling-batch function until every answer is complete; return the whole answer to each body."""
        texts = dict.fromkeys(range(len(inputs)), "")
        live = list(range(len(inputs)))
        bodies: Sequence[Any] = inputs
        while live:
            output = self.inference_batch(bodies, properties, serving_properties)
            if len(output.content.values) != len(live):
                raise ValueError(f"a batch of {len(live)} was answered with {len(output.content.values)} contents")
            going_on = []
            for place, chunk in zip(live, output.content.values, strict=True):
                fields = decode_encoded_output_binary(chunk)
                texts[place] += fields["data"] or _error(fields)
                if fields["last"].lower() != "true":
                    going_on.append(place)
            live, properties = going_on, None
            bodies = [{"inputs": ""}] * len(live)
        return texts


def _error(fields: Mapping[str, str]) -> str:
    """Return the text of a chunk that holds only an error."""
    return json.dumps({"error": fields["error"]}) if "error" in fields else ""


def create_concurrent_batch_request(
    inputs: Sequence[Any],
    properties: Sequence[Mapping[str, str]] | None = None,
    serving_properties: Mapping[str, str] | None = None,
) -> Input:
    """Return several JSON bodies as one Input."""
    items = [create_json_request(body) for body in inputs]
    for index, item in enumerate(items):
        item.properties |= {**(serving_properties or {}), **(properties[index] if properties else {})}
    batch = batch_of(items)
    batch.properties |= serving_properties or {}
    return batch


def decode_encoded_output_binary(chunk: bytes) -> dict[str, str]:
    """Return the fields of a chunk of `Output.binary_encode` as str."""
    if not isinstance(chunk, EncodedChunk):
        raise TypeError("a rolling batch must be answered with chunks from Output.binary_encode")
    fields = {name: str(value) for name, value in chunk.fields.items() if value is not None}
    return {"last": "False", **fields, "data": chunk.decode()}


def load_properties(properties_dir: str | None) -> dict[str, str]:
    """Return a model directory's `serving.properties` without the prefix `option.`."""
    path = Path(properties_dir) / PROPERTIES_FILE if properties_dir else None
    if path is None or not path.is_file():
        return {}
    entries = java_properties.parse(path.read_text(encoding="utf-8"), path.name)
    return {entry.key.removeprefix(OPTION_PREFIX): entry.value.strip() for entry in entries}


def update_properties_with_env_vars(kwargs: dict[str, str]) -> dict[str, str]:
    """Return the properties, with missing ones from the environment: `OPTION_*`, `HF_MODEL_ID` and others."""
    for name, value in os.environ.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
            kwargs.setdefault(KEY_CASES.get(key, key), value)
    for name, key in _short_names():
        if name in os.environ:
            kwargs.setdefault(key, os.environ[name])
    return kwargs


def _short_names() -> Iterator[tuple[str, str]]:
    types: list[type[Properties]] = [ServerProperties, RequestProperties]
    for properties in [*types, *(backend.properties_type for backend in load_plugins().backends)]:
        for key in keys_of(properties):
            for name in key.environment:
                if not name.startswith((ENVIRONMENT_PREFIX, "SERVING_")):
                    yield name, key.key.removeprefix(OPTION_PREFIX)


def _load(entry_point: str, directory: Path) -> ModuleType:
    """Import a file of the directory, which becomes the working directory, or a module by its name."""
    os.chdir(directory)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    path = Path(entry_point)
    if path.suffix != ".py":
        return importlib.import_module(entry_point)
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"entry-point file not found {path.resolve()}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wait(result: Any) -> Any:
    """Return an asynchronous function's result; for a stream of outputs, join their contents."""
    return asyncio.run(_collect(result)) if inspect.iscoroutine(result) or isinstance(result, AsyncIterable) else result


async def _collect(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result = await result
    if not isinstance(result, AsyncIterable):
        return result
    whole: Output | None = None
    async for output in result:
        if whole is None:
            whole = answer_of(output)
        else:
            whole.content.add_all(output.content)
    return whole if whole is not None else answer_of(None)


def create_request(input_files: Iterable[str], parameters: Iterable[str] | None = None) -> Input:
    """Create an Input from files or texts, each plain or after `name=`, and `name=value` properties."""
    request = _new_request("text/plain")
    for parameter in parameters or ():
        name, separator, value = parameter.partition("=")
        if not separator:
            raise ValueError(f"Invalid model parameter: {parameter}")
        request.properties[name] = value
    for index, given in enumerate(input_files):
        name, separator, value = given.partition("=")
        key, text = (name, value) if separator and name.isidentifier() else (None, given)
        data, kind = _content(text)
        request.content.add(key, data)
        if index == 0 or key == "data":
            request.properties["content-type"] = kind
    return request


def create_text_request(text: str, key: str | None = None) -> Input:
    return _new_request("text/plain", key, text.encode())


def create_json_request(body: Any, key: str | None = None) -> Input:
    return _new_request("application/json", key or "data", json.dumps(body).encode())


def create_numpy_request(list: Any, key: str | None = None) -> Input:
    """Create an Input from arrays, as a `tensor/ndlist`."""
    return _new_request("tensor/ndlist", key, to_nd_list(list))


def create_npz_request(list: Any, key: str | None = None) -> Input:
    """Create an Input from arrays, as an npz file."""
    return _new_request("tensor/npz", key, to_npz(list))


def extract_output_as_input(outputs: Output) -> Input:
    """Return an answer as an Input, to read its contents."""
    found = Input()
    found.properties = outputs.properties
    found.content = outputs.content
    return found


def extract_output_as_bytes(outputs: Output, key: str | None = None) -> Any:
    return extract_output_as_input(outputs).get_as_bytes(key)


def extract_output_as_string(outputs: Output, key: str | None = None) -> str:
    return extract_output_as_input(outputs).get_as_string(key)


def extract_output_as_numpy(outputs: Output, key: str | None = None) -> Any:
    return extract_output_as_input(outputs).get_as_numpy(key)


def extract_output_as_npz(outputs: Output, key: str | None = None) -> Any:
    return extract_output_as_input(outputs).get_as_npz(key)


def _content(text: str) -> tuple[bytes, str]:
    path = Path(text) if len(text) < 1024 else None
    if path is not None and path.is_file():
        kind = TENSOR_TYPES.get(path.suffix) or mimetypes.guess_type(path)[0]
        return path.read_bytes(), kind or "application/octet-stream"
    is_object = text.startswith("{") and text.endswith("}")
    return text.encode(), "application/json" if is_object else "text/plain"


def _new_request(content_type: str, key: str | None = None, data: bytes | None = None) -> Input:
    request = Input()
    request.properties = {"device_id": "-1", "content-type": content_type}
    if data is not None:
        request.content.add(key, data)
    return request


def run() -> None:
    """Call the function given on the command line."""
    arguments = _parser().parse_args()
    configure_logging("info")
    handler = TestHandler(arguments.entry_point, arguments.model_dir)
    inputs = create_request(arguments.input, arguments.parameters)
    inputs.function_name = arguments.handler
    output = handler.inference(inputs)
    print(f"output: {output}")
    for value in output.content.values:
        print(bytes(value).decode(errors="replace"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("djl-test-model", description="Call a model function once, without a server.")
    parser.add_argument("--model-dir", default=".", help="The model directory.")
    parser.add_argument("--entry-point", default="model.py", help="The Python file of the model function, or a module.")
    parser.add_argument("--handler", default="handle", help="The function.")
    parser.add_argument(
        "--input",
        nargs="+",
        required=True,
        help="Contents of the input: files or strings, each with or without a leading name=.",
    )
    parser.add_argument("--parameters", nargs="*", help="Properties of the input, as name=value.")
    return parser


if __name__ == "__main__":
    run()

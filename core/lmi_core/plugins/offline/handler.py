"""Calls of model functions without a server: `djl_python.test_model`."""

import asyncio
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import AsyncIterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from lmi_core.configuration import java_properties
from lmi_core.configuration.model_directory import PROPERTIES_FILE
from lmi_core.configuration.properties import OPTION_PREFIX, Properties, RequestProperties, ServerProperties, declared
from lmi_core.plugins.loading import load_plugins
from lmi_core.plugins.offline.requests import create_json_request
from lmi_core.script.djl_names.inputs import Input, batch_of
from lmi_core.script.djl_names.outputs import EncodedChunk, Output
from lmi_core.script.function.answers import answer_of

ENVIRONMENT_PREFIX = "OPTION_"
KEY_CASES = {"entrypoint": "entryPoint"}


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
        return answer_of(_waited(function(inputs)))

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
        for key in declared(properties):
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


def _waited(result: Any) -> Any:
    """Return an asynchronous function's result; for a stream of outputs, join their contents."""
    if inspect.iscoroutine(result):
        result = asyncio.run(_awaited(result))
    return asyncio.run(_collected(result)) if isinstance(result, AsyncIterable) else result


async def _awaited(result: Any) -> Any:
    found = await result
    return await _collected(found) if isinstance(found, AsyncIterable) else found


async def _collected(outputs: AsyncIterable[Any]) -> Output:
    whole: Output | None = None
    async for output in outputs:
        if whole is None:
            whole = answer_of(output)
        else:
            whole.content.add_all(output.content)
    return whole if whole is not None else answer_of(None)

"""The input of a model function: `djl_python.Input`."""

import csv
import importlib
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from lmi_core.script.djl_names import nd_list
from lmi_core.script.djl_names.pair_list import PairList

BATCH_SIZE = "batch_size"
BATCH_KEY = re.compile(r"batch_(\d+)\.(.*)", re.DOTALL)  # the index of a request and the key in that request


class Input:
    """The content and properties of one request or, with dynamic batching, of several.

    The properties are the model's options and the request's headers; names are case-insensitive.
    """

    def __init__(self) -> None:
        self.function_name: str | None = None
        self.properties: dict[str, str] = {}
        self.content = PairList()
        self.unfinished = False  # in a rolling batch: an earlier call contained the content
        self._batch: list[Input] = []

    def __str__(self) -> str:
        sizes = {key: len(value) for key, value in zip(self.content.keys, self.content.values, strict=True)}
        return f"Input: properties {self.properties}, content in bytes {sizes}"

    def is_batch(self) -> bool:
        return BATCH_SIZE in self.properties

    def get_batch_size(self) -> int:
        return int(self.properties.get(BATCH_SIZE, "1"))

    def get_batches(self) -> list["Input"]:
        """Return the batch's requests; the input itself if it is not a batch."""
        if not self.is_batch():
            return [self]
        self._batch = self._batch or self._split()
        return self._batch

    def get_function_name(self) -> str | None:
        return self.function_name

    def get_properties(self) -> dict[str, str]:
        return self.properties

    def get_property(self, key: str) -> str | None:
        return next((value for name, value in self.properties.items() if name.lower() == key.lower()), None)

    def get_content(self) -> PairList:
        return self.content

    def contains_key(self, key: str) -> bool:
        return self.content.get(key) is not None

    def is_empty(self) -> bool:
        """Return whether there is no content, as in the call that loads the model."""
        return self.content.is_empty()

    def get_data(self, key: str | None = None) -> Any:
        """Return the content, decoded by its content type."""
        kind = (self.get_property("content-type") or "").partition(";")[0].strip().lower()
        if self.is_empty():
            return None
        if kind == "tensor/ndlist":
            return self.get_as_numpy(key)
        if kind == "tensor/npz":
            return self.get_as_npz(key)
        if kind == "application/json":
            return self.get_as_json(key)
        if kind.startswith("text/"):
            return self.get_as_string(key)
        return self.get_as_image(key) if kind.startswith("image/") else self.get_as_bytes(key)

    def _split(self) -> list["Input"]:
        """Return the requests of a batch that the script's own code has built."""
        batch = [Input() for _ in range(self.get_batch_size())]
        for name, value in self.properties.items():
            if match := BATCH_KEY.fullmatch(name):
                batch[int(match[1])].properties[match[2]] = value
        for key, value in zip(self.content.keys, self.content.values, strict=True):
            if match := BATCH_KEY.fullmatch(key or ""):
                batch[int(match[1])].content.add(match[2], value)
        return batch

    def get_as_bytes(self, key: str | None = None) -> Any:
        """Return the content of that name; without a name, `data` or the first content."""
        if self.is_empty():
            return None
        found = self.content.get(key or "data")
        if found is None and key:
            raise KeyError(f"the request has no content `{key}`. It has: {', '.join(map(str, self.content.keys))}")
        return self.content.value_at(0) if found is None else found

    def get_as_string(self, key: str | None = None) -> str:
        return bytes(self.get_as_bytes(key)).decode()

    def get_as_json(self, key: str | None = None) -> Any:
        text = self.get_as_string(key)
        return {"inputs": [""]} if self.unfinished and not text else json.loads(text)

    def get_as_csv(self, key: str | None = None) -> list[dict[str, str]]:
        """Return an object for each line after the header."""
        return list(csv.DictReader(io.StringIO(self.get_as_string(key))))

    def get_as_image(self, key: str | None = None) -> Any:
        """Return the content as a Pillow image; Pillow must be installed."""
        return importlib.import_module("PIL.Image").open(io.BytesIO(self.get_as_bytes(key)))

    def get_as_numpy(self, key: str | None = None) -> list[Any]:
        """Return the arrays of a `tensor/ndlist` or an npz file."""
        return nd_list.from_nd_list(self.get_as_bytes(key))

    def get_as_npz(self, key: str | None = None) -> list[Any]:
        return nd_list.from_npz(self.get_as_bytes(key))


def input_of(properties: dict[str, str], content: Iterable[tuple[str | None, bytes]]) -> Input:
    """Return a request as the Input of a model function."""
    found = Input()
    found.properties = properties
    for key, value in content:
        found.content.add(key, value)
    return found


def batch_of(requests: Sequence[Input]) -> Input:
    """Return the requests as a batch, even a single one."""
    batch = Input()
    batch.function_name = requests[0].function_name
    batch.properties[BATCH_SIZE] = str(len(requests))
    batch._batch = list(requests)
    for place, request in enumerate(requests):
        for name, value in request.properties.items():
            batch.properties[f"batch_{place:03}.{name}"] = value
        for key, value in zip(request.content.keys, request.content.values, strict=True):
            batch.content.add(f"batch_{place:03}.{key}", value)
    return batch

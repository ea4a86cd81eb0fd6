"""The result of a model function: `djl_python.Output`."""

import json
from collections.abc import AsyncIterable, Callable, Iterable
from datetime import date
from typing import Any, Self

from lmi_core.script.djl_names import nd_list
from lmi_core.script.djl_names.pair_list import PairList

TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
JSON = "application/json"

StreamFormatter = Callable[[Any], bytes | bytearray | str]


def stream_line(item: Any) -> bytes:
    """Return a stream's item as a line of JSON, `{"outputs": item}`, even if it is an object, as DJLServing does."""
    return bytes(item) if isinstance(item, bytes | bytearray) else _json({"outputs": item}) + b"\n"


class EncodedChunk(bytes):
    """The result of `Output.binary_encode`: text, and its fields from an asynchronous model function."""

    fields: dict[str, Any]


class Output:
    """The answer to a request or, for a batch, a content for each request in order."""

    def __init__(self, code: int = 200, message: str = "OK") -> None:
        self.code = code
        self.message = message
        self.properties: dict[str, str] = {}
        self.content = PairList()
        self.stream_content: Iterable[Any] | AsyncIterable[Any] | None = None
        self.stream_formatter: StreamFormatter | None = None
        self._added_type = TEXT
        self._finalize: Callable[[], Any] | None = None

    def __str__(self) -> str:
        sizes = {key: len(value) for key, value in zip(self.content.keys, self.content.values, strict=True)}
        return f"Output {self.code} {self.message}: properties {self.properties}, content in bytes {sizes}"

    def set_code(self, code: int) -> Self:
        self.code = code
        return self

    def set_message(self, message: str) -> Self:
        self.message = message
        return self

    def error(self, error: str, code: int = 424, message: str = "prediction failure") -> Self:
        """Set an error as the answer, as JSON."""
        self.set_code(code).set_message(message).add_property("content-type", "application/json")
        return self.add_as_json({"code": code, "message": message, "error": error})

    def add_property(self, key: str, val: str) -> Self:
        """Add a response header."""
        self.properties[key] = val
        return self

    def add(self, value: Any, key: str | None = None, batch_index: int | None = None) -> Self:
        """Add a content: str and bytes unchanged, anything else as JSON."""
        if isinstance(value, EncodedChunk):
            return self._add_chunk(value, key, batch_index)
        if isinstance(value, str):
            return self._put(value.encode(), TEXT, key, batch_index)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._put(bytes(value), BYTES, key, batch_index)
        return self.add_as_json(value, key, batch_index)

    def add_as_json(self, val: Any, key: str | None = None, batch_index: int | None = None) -> Self:
        return self._put(_json(val, indent=2), JSON, key, batch_index)

    def add_as_string(
        self, val: Any, encoding: str = "utf-8", key: str | None = None, batch_index: int | None = None
    ) -> Self:
        return self._put(str(val).encode(encoding), TEXT, key, batch_index)

    def add_as_numpy(self, np_list: Any, key: str | None = None, batch_index: int | None = None) -> Self:
        return self._put(nd_list.to_nd_list(np_list), "tensor/ndlist", key, batch_index)

    def add_as_npz(self, np_list: Any, key: str | None = None, batch_index: int | None = None) -> Self:
        return self._put(nd_list.to_npz(np_list), "tensor/npz", key, batch_index)

    @property
    def content_type(self) -> str:
        """The content type set as a property, otherwise that of the last added content."""
        named = [value for name, value in self.properties.items() if name.lower() == "content-type"]
        return named[-1] if named else self._added_type

    def add_stream_content(self, stream_content: Any, output_formatter: StreamFormatter | None = stream_line) -> Self:
        """Stream the iterator's items through the formatter; without one, str and bytes are sent unchanged."""
        self.stream_content = stream_content
        self.stream_formatter = output_formatter
        self._added_type = "application/jsonlines" if output_formatter is stream_line else TEXT
        return self

    def stream_chunk(self, item: Any) -> bytes:
        return _data(self.stream_formatter(item) if self.stream_formatter else item)

    def finalize(self, func: Callable[..., Any], *args: Any) -> Self:
        """Register a function to call after the answer is sent."""
        self._finalize = lambda: func(*args)
        return self

    def execute_finalize(self) -> Any:
        finalize, self._finalize = self._finalize, None
        return finalize() if finalize is not None else None

    _default_stream_output_formatter = staticmethod(stream_line)  # scripts pass it as a keyword argument

    @staticmethod
    def binary_encode(fields: dict[str, Any]) -> EncodedChunk:
        """Return a chunk of an asynchronous answer with `data`, `last` and, for a failure, `error` and `code`."""
        chunk = EncodedChunk(_data(fields.get("data", "")))
        chunk.fields = fields
        return chunk

    def _put(self, data: bytes, content_type: str, key: str | None, batch_index: int | None) -> Self:
        self._added_type = content_type
        name = None if key is None else str(key)
        self.content.add(name if batch_index is None else f"batch_{batch_index:03}.{name or 'data'}", data)
        return self

    def _add_chunk(self, chunk: EncodedChunk, key: str | None, batch_index: int | None) -> Self:
        """Add a chunk, which in a batch belongs to one request only."""
        if batch_index is None and not str(key).startswith("batch_"):
            for name, value in (chunk.fields.get("properties") or {}).items():
                self.add_property(name, value)
            if chunk.fields.get("error"):
                self.code = int(chunk.fields.get("code") or 424)
                self.message = str(chunk.fields["error"])
        return self._put(chunk, BYTES, key, batch_index)


def _data(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _json(value, indent=2)


def _json(value: Any, indent: int | None = None) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=_plain, separators=(",", ":"))
    return text.encode()


def _plain(value: Any) -> Any:
    """Convert numbers and arrays of numpy and torch, and dates, to JSON types."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, date):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")

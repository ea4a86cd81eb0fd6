"""Parsing of the output of a model function of the rolling-batch form."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lmi_core.script.djl_names.outputs import JSON, EncodedChunk, Output
from lmi_core.script.function.answers import FAILED, FAILURES, headers_of, sendable
from lmi_core.script.function.protocol import Chunk, End, Head, Reply, Working

OF_REQUEST = re.compile(r"batch_(\d+)[_.](.+)")  # a property of one request: its index and the name of the header
EXPECTED = (
    "each content must be JSON with `data` and `last`, or come from Output.binary_encode. A function that answers a "
    "request in one call needs option.rolling_batch=disable"
)


class WrongAnswer(Exception):
    """The output is not that of a rolling batch; the message completes a sentence that begins with the function."""


@dataclass(frozen=True, slots=True)
class RollingStep:
    """The next part of one request's answer, or the error that ends it."""

    data: bytes
    last: bool
    error: str | None = None
    code: int = FAILED  # the status of an error
    headers: Mapping[str, str] = field(default_factory=dict)

    def replies(self, call_id: int, begun: bool) -> list[Reply | Working]:
        """Return the messages to the server; `begun` means that the answer's head was sent."""
        if self.error is not None and begun:
            return [End(call_id, self.error)]
        if self.error is not None:
            return [Head(call_id, self.code, dict(self.headers), [(None, self.data)]), End(call_id)]
        if not begun and self.last:  # a complete answer may set its own status
            return [Head(call_id, _status(self.data), dict(self.headers), [(None, self.data)]), End(call_id)]
        if not self.data and not self.last:
            return [Working(call_id)]
        head: list[Reply | Working] = [] if begun else [Head(call_id, 200, dict(self.headers), [], streams=True)]
        chunk: list[Reply | Working] = [Chunk(call_id, self.data)] if self.data else []
        return [*head, *chunk, *([End(call_id)] if self.last else [])]


def read_steps(output: Output, size: int, content_type: str) -> list[RollingStep]:
    """Return the step of each request in order.

    Raise WrongAnswer for output of another form. `content_type` is the default content type of answers.
    """
    values = output.content.values
    if len(values) != size or output.stream_content is not None:
        found = "a stream" if output.stream_content is not None else f"{len(values)} contents"
        raise WrongAnswer(f"answered a rolling batch of {size} with {found}: {EXPECTED}")
    headers = _headers(output.properties, size, content_type)
    return [_step(index, value, headers[index]) for index, value in enumerate(values)]


def _step(index: int, value: bytes, headers: Mapping[str, str]) -> RollingStep:
    fields = _fields(index, value)
    error, code = fields.get("error"), _code(index, fields)
    if error or code >= FAILURES:
        message = sendable(str(error or f"the request failed with code {code}"))
        body = json.dumps({"error": message, "code": code or FAILED}).encode()
        return RollingStep(body, True, message, code or FAILED, {**headers, "Content-Type": JSON})
    return RollingStep(_data(fields.get("data")), _is_true(fields.get("last")), headers=headers)


def _code(index: int, fields: Mapping[str, Any]) -> int:
    """Return a step's status; 0 for none. Raise WrongAnswer if it is not a number."""
    given = fields.get("code") or 0
    try:
        return int(given)
    except (TypeError, ValueError):
        raise WrongAnswer(
            f"answered request {index} of a rolling batch with a `code` that is not a number: {given!r:.80}"
        ) from None


def _fields(index: int, value: bytes) -> Mapping[str, Any]:
    if isinstance(value, EncodedChunk):
        return value.fields
    try:
        fields = json.loads(value)
    except ValueError:
        fields = None
    if not isinstance(fields, dict) or "last" not in fields:
        text = sendable(value[:80].decode(errors="replace"))
        raise WrongAnswer(f"answered request {index} of a rolling batch with {text!r}: {EXPECTED}")
    return fields


def _headers(properties: Mapping[str, Any], size: int, content_type: str) -> list[dict[str, str]]:
    """Return the headers of each request; its own properties override those of the batch."""
    common = {name: value for name, value in properties.items() if not str(name).startswith("batch_")}
    own: list[dict[str, Any]] = [{} for _ in range(size)]
    for name, value in properties.items():
        match = OF_REQUEST.fullmatch(str(name))
        if match and int(match[1]) < size and value is not None:
            own[int(match[1])][match[2]] = value
    return [headers_of(_merge(common, each), content_type) for each in own]


def _merge(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    names = {name.lower() for name in own}
    return {name: value for name, value in common.items() if name.lower() not in names} | dict(own)


def _status(data: bytes) -> int:
    """Return the status in an answer of the form `{"code": ..., "error": ...}` of older functions, otherwise 200."""
    if not data.startswith(b"{"):
        return 200
    try:
        body = json.loads(data)
    except ValueError:
        return 200
    code = body.get("code")
    return code if isinstance(code, int) and FAILURES <= code < 600 and "error" in body else 200


def _data(data: Any) -> bytes:
    if data is None:
        return b""
    if isinstance(data, bytes | bytearray):
        return bytes(data)
    return sendable(data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)).encode()


def _is_true(value: Any) -> bool:
    return value.lower() == "true" if isinstance(value, str) else bool(value)

"""The rolling batch of a model function, which is called repeatedly with all unfinished requests."""

import asyncio
import inspect
import json
import logging
import re
import secrets
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lmi_core.script.djl_names.inputs import Input, batch_of
from lmi_core.script.djl_names.outputs import JSON, EncodedChunk, Output
from lmi_core.script.function.answers import (
    FAILED,
    FAILURES,
    answer_of,
    failure,
    finalize,
    head_of,
    headers_of,
    sendable,
)
from lmi_core.script.function.protocol import Chunk, End, Head, Reply, Working
from lmi_core.script.function.script import FunctionScript

logger = logging.getLogger(__name__)

RESET = "reset_rollingbatch"  # a property of the call after a failed one, which makes the function forget its requests
SEED_BITS = 31
OF_REQUEST = re.compile(r"batch_(\d+)[_.](.+)")  # a property of one request: its index and the name of the header
EXPECTED = (
    "each content must be JSON with `data` and `last`, or come from Output.binary_encode. A function that answers a "
    "request in one call needs option.rolling_batch=disable"
)


@dataclass
class RollingRequest:
    """A request in the batch until its last answer."""

    call_id: int
    inputs: Input
    known: bool = False  # the function has received it
    begun: bool = False  # the head of its answer has been sent
    cancelled: bool = False  # its answers are ignored, but the function still counts it

    def next_inputs(self) -> Input:
        """Return the request, with a seed, for its first call, and an empty Input for later calls."""
        if not self.known:
            self.known = True
            self.inputs.content.add("seed", str(secrets.randbits(SEED_BITS)).encode())
            return self.inputs
        unfinished = Input()
        unfinished.unfinished = True
        unfinished.content.add("data", b"")
        return unfinished


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


class RollingBatch:
    """The unfinished requests in order of arrival; the function refers to them by index."""

    def __init__(self, script: FunctionScript, runner: asyncio.Runner, content_type: str) -> None:
        self._script = script
        self._runner = runner
        self._content_type = content_type
        self._requests: list[RollingRequest] = []
        self._reset = False

    @property
    def empty(self) -> bool:
        return not self._requests

    def add(self, call_id: int, inputs: Input) -> None:
        """Add a request to the next call."""
        self._requests.append(RollingRequest(call_id, inputs))

    def cancel(self, call_id: int) -> list[Reply]:
        """Drop a request that was not in a call yet; otherwise ignore its further answers."""
        for request in self._requests:
            if request.call_id == call_id:
                request.cancelled = True
                if not request.known:
                    self._requests.remove(request)
                    return [End(call_id)]
        return []

    def step(self) -> list[Reply | Working]:
        """Call the function once with the whole batch."""
        if self.empty:
            return []
        try:
            output = answer_of(self._call())
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            function = self._script.function
            self._script.log(error, [request.inputs for request in self._requests], function)
            words, note = self._script.name_of(function), self._script.note(error)
            failed = [failure(each.call_id, error, words, each.begun, note) for each in self._clear()]
            return [reply for of_request in failed for reply in of_request]
        if output.code >= FAILURES:
            return self._fail_all(output, f"answered {output.code}: {output.message}")
        try:
            steps = read_steps(output, len(self._requests), self._content_type)
        except WrongAnswer as error:
            return self._fail_all(Output().error(f"{self._name} {error}"), str(error))
        replies = [
            reply for request, step in zip(self._requests, steps, strict=True) for reply in self._replies(request, step)
        ]
        self._requests = [request for request, step in zip(self._requests, steps, strict=True) if not step.last]
        self._script.initialization_error = None
        finalize(output)
        return replies

    def _call(self) -> Any:
        batch = batch_of([request.next_inputs() for request in self._requests])
        if self._reset:
            batch.properties[RESET] = "true"
            self._reset = False
        result = self._script.call(self._script.function, batch)
        return self._runner.run(_result_of(result)) if inspect.isawaitable(result) else result

    def _replies(self, request: RollingRequest, step: RollingStep) -> list[Reply | Working]:
        if request.cancelled:
            return [End(request.call_id) if step.last else Working(request.call_id)]
        replies = step.replies(request.call_id, request.begun)
        request.begun = request.begun or any(isinstance(reply, Head) for reply in replies)
        return replies

    @property
    def _name(self) -> str:
        return f"{self._script.function} in {self._script.path.name}"

    def _fail_all(self, output: Output, reason: str) -> list[Reply | Working]:
        """Return an error as every request's answer, or as the end of a stream that has started."""
        logger.error("%s %s", self._name, reason)
        replies: list[Reply | Working] = []
        for request in self._clear():
            if not request.begun:
                replies.append(head_of(request.call_id, output))
            replies.append(End(request.call_id, f"{self._name} {reason}" if request.begun else None))
        return replies

    def _clear(self) -> list[RollingRequest]:
        failed, self._requests = self._requests, []
        self._reset = True
        return failed


async def _result_of(result: Awaitable[Any]) -> Any:
    return await result


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
    error, given = fields.get("error"), fields.get("code") or 0
    try:
        code = int(given)
    except (TypeError, ValueError):
        raise WrongAnswer(
            f"answered request {index} of a rolling batch with a `code` that is not a number: {given!r:.80}"
        ) from None
    if error or code >= FAILURES:
        message = sendable(str(error or f"the request failed with code {code}"))
        body = json.dumps({"error": message, "code": code or FAILED}).encode()
        return RollingStep(body, True, message, code or FAILED, {**headers, "Content-Type": JSON})
    last = fields.get("last")
    is_last = last.lower() == "true" if isinstance(last, str) else bool(last)
    return RollingStep(_data(fields.get("data")), is_last, headers=headers)


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
    names = [{name.lower() for name in each} for each in own]
    shared = [{name: value for name, value in common.items() if name.lower() not in each} for each in names]
    return [headers_of(of_batch | each, content_type) for of_batch, each in zip(shared, own, strict=True)]


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

"""Checks of every answer that a test gets, which must be as the OpenAPI document of its server says.

The document lets answers get further members one day. The check does not, so that each member is declared. The events
of streams in the forms of OpenAI and Anthropic are as the types of their clients say.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import jsonschema_rs
import orjson
from aiohttp import web
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

from lmi_core.formatter import AnswerWriter
from lmi_core.handler import Answer
from lmi_handlers.http.documentation.document import DOCUMENT
from lmi_handlers.http.exchange import Exchange, Stream

MAX_EVENTS = 500  # of one stream that are checked
ANY_TYPE = "*/*"
FAILED = 400
LENGTH = 1000  # of what is shown of a fault

JsonObject = dict[str, Any]
Validator = jsonschema_rs.Draft202012Validator
# The types of clients, by the titles of the schemas that stand for them.
CLIENT_TYPES: dict[str, Any] = {
    "ChatCompletionChunk": ChatCompletionChunk,
    "RawMessageStreamEvent": RawMessageStreamEvent,
    "ResponseStreamEvent": ResponseStreamEvent,
}
OWN_FINISH_REASONS = ("error", "abort")  # of streams that end before their time, which OpenAI's API lacks


class Undocumented(Exception):
    """An answer that the document lacks."""


class AnswerCheck:
    """A check of the values that a schema allows: its own forms, and those that the type of a client stands for."""

    def __init__(self, schema: JsonObject, definitions: JsonObject) -> None:
        forms: list[JsonObject] = schema.get("anyOf", [schema])
        self._client_types = [_adapter(form["title"]) for form in forms if form.get("title") in CLIENT_TYPES]
        own = [form for form in forms if form.get("title") not in CLIENT_TYPES]
        allowed = {"anyOf": own} if self._client_types else schema
        self._validator = Validator({**allowed, "components": {"schemas": definitions}}) if own else None

    def faults(self, value: Any) -> list[str]:
        if not self._client_types:
            assert self._validator is not None
            return [error.message for error in self._validator.iter_errors(value)]
        if self._validator is not None and self._validator.is_valid(value):
            return []
        return [fault for each in self._client_types for fault in _faults(each, _with_known_values(value))]


class Documented:
    """The answers that a document allows, by route, status and media type."""

    def __init__(self, document: JsonObject) -> None:
        self._document = document
        self._definitions = orjson.dumps(_strict(document["components"]["schemas"]))
        self._checks: dict[tuple[str, str, int, str], AnswerCheck | None] = {}

    def check(self, path: str, method: str, status: int, content_type: str) -> AnswerCheck | None:
        """Return the check of an answer or of its events, None where anything is allowed.

        Raise Undocumented where there should be no such answer.
        """
        key = (path, method, status, content_type)
        if key not in self._checks:
            self._checks[key] = self._new_check(*key)
        return self._checks[key]

    def _new_check(self, path: str, method: str, status: int, content_type: str) -> AnswerCheck | None:
        operation = self._document["paths"].get(path, {}).get(method.lower())
        if operation is None:
            raise Undocumented("there is no such route")
        response = self._response(operation, status)
        if response is None:
            raise Undocumented("it does not have the status")
        content = response.get("content", {})
        if not content or ANY_TYPE in content:
            return None
        if content_type not in content:
            raise Undocumented("it does not have the content type")
        schema = content[content_type].get("schema")
        return schema and _answer_check(orjson.dumps(schema), self._definitions)

    def _response(self, operation: JsonObject, status: int) -> JsonObject | None:
        responses = operation["responses"]
        found: JsonObject | None = responses.get(str(status)) or responses.get("default" if status >= FAILED else "2XX")
        if found is not None and "$ref" in found:
            shared: JsonObject = self._document["components"]["responses"][found["$ref"].rpartition("/")[2]]
            return shared
        return found


class AnswerChecks:
    """The faults of the answers since they were last asked for."""

    def __init__(self) -> None:
        self._faults: list[str] = []
        self._num_events: dict[int, int] = {}

    def take(self) -> list[str]:
        found, self._faults = self._faults, []
        self._num_events.clear()
        return found

    def check_whole(self, request: web.Request, status: int, content_type: str, body: bytes) -> None:
        self._check(request, status, content_type, body)

    def check_event(self, request: web.Request, content_type: str, data: bytes) -> None:
        count = self._num_events[id(request)] = self._num_events.get(id(request), 0) + 1
        if count <= MAX_EVENTS:
            self._check(request, 200, content_type, data)

    def _check(self, request: web.Request, status: int, content_type: str, data: bytes) -> None:
        resource = request.match_info.route.resource
        assert resource is not None
        path = resource.canonical.rstrip("/") or "/"
        method = "GET" if request.method == "HEAD" else request.method
        media_type = content_type.partition(";")[0]
        try:
            check = document_forms(request.app[DOCUMENT]()).check(path, method, status, media_type)
            values = list(_values(data, media_type)) if check is not None else []
            faults = [fault for value in values for fault in check.faults(value)] if check else []
        except (Undocumented, orjson.JSONDecodeError) as error:
            faults = [str(error)]
        shown = f"{method} {path} {status} {media_type}"
        self._faults += [f"{shown}: {fault[:LENGTH]}: {data[:LENGTH]!r}" for fault in faults]


@lru_cache(maxsize=512)  # documents of servers whose models alone differ have the same
def _answer_check(schema: bytes, definitions: bytes) -> AnswerCheck:
    return AnswerCheck(orjson.loads(schema), orjson.loads(definitions))


@lru_cache(maxsize=32)
def document_forms(document: bytes) -> Documented:
    return Documented(orjson.loads(document))


def watch(checks: AnswerChecks) -> Iterator[None]:
    """Check all answers of servers in this process until the generator resumes."""
    send, begin, written = Exchange.send, Exchange._begin, Stream._encode
    requests: WeakKeyDictionary[Stream, web.Request] = WeakKeyDictionary()

    async def checked_send(self: Exchange, answer: Answer, headers: Mapping[str, str] | None = None) -> web.Response:
        content_type = (headers or {}).get("Content-Type", answer.content_type)
        checks.check_whole(self.request, answer.status, content_type, answer.body)
        return await send(self, answer, headers)

    async def noted_begin(self: Exchange, formatter: AnswerWriter, stream: Stream) -> Stream:
        requests[stream] = self.request
        return await begin(self, formatter, stream)

    def checked_written(self: Stream, events: bytes | list[bytes]) -> bytes:
        if (request := requests.get(self)) is not None:  # a test of streams alone has no exchange
            for event in [events] if isinstance(events, bytes) else events:
                framed = event if self._frame is None else self._frame(event)
                checks.check_event(request, self.headers["Content-Type"], framed)
        return written(self, events)

    Exchange.send, Exchange._begin, Stream._encode = checked_send, noted_begin, checked_written  # type: ignore[method-assign]
    try:
        yield
    finally:
        Exchange.send, Exchange._begin, Stream._encode = send, begin, written  # type: ignore[method-assign]


def _values(data: bytes, media_type: str) -> Iterator[Any]:
    """Yield the JSON values of an answer, or of some of its events."""
    match media_type:
        case "application/json" if data:
            yield orjson.loads(data)
        case "application/jsonlines" | "application/x-ndjson":
            yield from (orjson.loads(line) for line in data.splitlines() if line)
        case "text/event-stream":
            lines = [line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: ")]
            yield from (orjson.loads(line) for line in lines if line != b"[DONE]")


def _strict(schemas: Mapping[str, JsonObject]) -> dict[str, JsonObject]:
    """Return the schemas without room for members that they do not declare."""
    found = deepcopy(dict(schemas))
    for schema in found.values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return found


@lru_cache
def _adapter(title: str) -> TypeAdapter[Any]:
    return TypeAdapter(CLIENT_TYPES[title])


def _faults(adapter: TypeAdapter[Any], value: Any) -> list[str]:
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        return [str(error)]
    return []


def _with_known_values(value: Any) -> Any:
    """Return a chunk in which values that the client's type lacks are replaced by known ones."""
    if not isinstance(value, dict) or not isinstance(value.get("choices"), list):
        return value
    choices = deepcopy(value["choices"])
    for choice in choices:
        if choice.get("finish_reason") in OWN_FINISH_REASONS:
            choice["finish_reason"] = "stop"
        for call in choice.get("delta", {}).get("tool_calls", ()):
            if call.get("type") == "custom":  # OpenAI's API streams these, but its types lack them
                call["type"] = "function"
    return value | {"choices": choices}

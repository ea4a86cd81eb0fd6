"""The request of a client."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import orjson

from lmi_core.calls.access import Reach
from lmi_core.errors import InvalidPayload, LmiError, PayloadTooLarge
from lmi_core.payloads.payload import check_object, read_json

MEMBERS = (b"{", b"[", b":")
QUOTE_OR_MEMBER = re.compile(rb'[^"{\[:]{0,100000}+(["{\[:]?)')  # or just a part of what is before it
STRING_PART = re.compile(rb'[^"\\]{0,100000}+(?:\\.[^"\\]{0,100}+){0,1000}+', re.DOTALL)
STEP = 1 << 18  # bytes, counted in less than a millisecond before other threads may run


def has_more_members(body: bytes, limit: int) -> bool:
    """Return whether the number of objects, lists and members in a JSON text exceeds `limit`.

    Each takes a hundred times as long to parse and check as a character of a string.
    """
    if sum(body.count(each, begin, begin + STEP) for begin in range(0, len(body), STEP) for each in MEMBERS) <= limit:
        return False
    count = position = 0
    while count <= limit and position < len(body) and (found := QUOTE_OR_MEMBER.match(body, position)):
        position = found.end()
        if found[1] == b'"':
            position = _end_of_string(body, position)
        else:
            count += len(found[1])
    return count > limit


def _end_of_string(body: bytes, position: int) -> int:
    """Return the position after the end of the string or body; other threads run between its parts."""
    while (part := STRING_PART.match(body, position)) is not None and part.end() > position:
        position = part.end()
    return position + 1 if body[position : position + 1] == b'"' else len(body)


_NOT_PARSED = object()


class JsonBody:
    """The JSON in a body, parsed once, on first use."""

    __slots__ = ("_error", "_value", "body")

    def __init__(self, body: bytes, value: Any = _NOT_PARSED) -> None:
        """Create from a body, and its parsed `value` if already known."""
        self.body = body
        self._value = value
        self._error: LmiError | None = None

    @property
    def value(self) -> Any:
        """Return the parsed JSON. Raise InvalidPayload if it is not JSON, or PayloadTooLarge if `parse` refused it."""
        if self._value is _NOT_PARSED:
            self._parse()
        if self._error is not None:
            raise type(self._error)(self._error.message)
        return self._value

    def parse(self, max_members: int) -> None:
        """Parse the body, unless it has more than `max_members` objects, lists and members."""
        if self._value is not _NOT_PARSED:
            return
        if has_more_members(self.body, max_members):
            self._value = None
            self._error = PayloadTooLarge(
                f"the body must have at most {max_members} objects, lists and members in its JSON (max_request_members)"
            )
        else:
            self._parse()

    def _parse(self) -> None:
        self._value = None
        try:
            self._value = read_json(self.body)
        except InvalidPayload as error:
            self._error = error


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request with its whole body; header names are case-insensitive."""

    path_parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    request_id: str
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    peer: str = ""  # the client's IP address
    key: str | None = None  # the holder of the client's API key; None without keys, or for an operator
    attributes: Mapping[str, str] = field(default_factory=dict)  # properties from the request's own headers, by name
    parsed: JsonBody | None = field(default=None, repr=False, compare=False)  # the body's JSON, read by `json`
    reach: Reach = field(default_factory=Reach)  # what the client may use; passed to routes with an `answer` function

    def __post_init__(self) -> None:
        if self.parsed is None or self.parsed.body is not self.body:  # the call was created by `replace`
            object.__setattr__(self, "parsed", JsonBody(self.body))

    def text(self) -> str:
        """Return the body as text. Raise InvalidPayload if it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise InvalidPayload(f"the body must be UTF-8 text: {error}") from None

    def json(self) -> Any:
        """Return the body's JSON, which is shared: copy it before changing it.

        Raise InvalidPayload for other bodies, and PayloadTooLarge if it exceeds the server's limits.
        """
        assert self.parsed is not None
        return self.parsed.value

    def parse_json(self, max_members: int) -> None:
        """Parse the body's JSON for `json`, which raises the error if it is not valid or has too many members."""
        assert self.parsed is not None
        self.parsed.parse(max_members)

    def json_object(self) -> dict[str, Any]:
        """Return the body's JSON object, which is shared. Raise InvalidPayload if the body is not a JSON object."""
        return check_object(self.json())

    def with_json(self, value: Any) -> Self:
        """Return the call with another JSON body. Raise InvalidPayload if the value cannot be written as JSON."""
        try:
            body = orjson.dumps(value)
        except orjson.JSONEncodeError as error:  # orjson reads deeper nesting than it can write
            raise InvalidPayload(f"the body cannot be written as JSON: {error}") from None
        return replace(self, body=body, parsed=JsonBody(body, value))

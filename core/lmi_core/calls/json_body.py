"""The shared JSON of a body."""

import re
from typing import Any

from lmi_core.errors import InvalidPayload, LmiError, PayloadTooLarge
from lmi_core.payloads.payload import read_json

# A string, whole or up to the end of the text, so that the search takes linear time; or what begins a value's contents.
STRING_OR_MEMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{\[:]', re.DOTALL)
MEMBERS = (b"{", b"[", b":")


def has_more_members(body: bytes, limit: int) -> bool:
    """Return whether a JSON text has more objects, lists and members of objects than `limit`, together.

    Each takes a hundred times as long to parse and check as a character of a text.
    """
    if sum(map(body.count, MEMBERS)) <= limit:
        return False
    count = 0
    for found in STRING_OR_MEMBER.finditer(body):
        count += body[found.start()] != ord('"')
        if count > limit:
            return True
    return False


_NOT_PARSED = object()


class JsonBody:
    """The JSON in a body, parsed once, on first use."""

    __slots__ = ("_error", "_value", "body")

    def __init__(self, body: bytes, value: Any = _NOT_PARSED) -> None:
        """Hold a body, and its parsed `value` if that is already known."""
        self.body = body
        self._value = value
        self._error: LmiError | None = None

    @property
    def value(self) -> Any:
        """Return the parsed JSON. Raise InvalidPayload where the body is not JSON, or PayloadTooLarge after `parse`."""
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

"""The shared JSON of a body."""

from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import read_json

_NOT_PARSED = object()


class JsonBody:
    """The JSON in a body, parsed once, on first use."""

    __slots__ = ("_error", "_value", "body")

    def __init__(self, body: bytes, value: Any = _NOT_PARSED) -> None:
        """Hold a body, and its parsed `value` if that is already known."""
        self.body = body
        self._value = value
        self._error: str | None = None

    @property
    def value(self) -> Any:
        """Return the parsed JSON. Raise InvalidPayload where the body is not JSON."""
        if self._value is _NOT_PARSED:
            self._parse()
        if self._error is not None:
            raise InvalidPayload(self._error)
        return self._value

    def _parse(self) -> None:
        self._value = None
        try:
            self._value = read_json(self.body)
        except InvalidPayload as error:
            self._error = error.message

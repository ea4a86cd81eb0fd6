"""A body's JSON, parsed once however many look at it."""

from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import read_json

_NOT_PARSED = object()


class JsonBody:
    """The JSON in a body, which is parsed the first time that it is asked for."""

    __slots__ = ("_error", "_value", "body")

    def __init__(self, body: bytes, value: Any = _NOT_PARSED) -> None:
        """`value` is given where it is known what the body's text stands for."""
        self.body = body
        self._value = value
        self._error: str | None = None

    @property
    def value(self) -> Any:
        """What the JSON stands for. Raise InvalidPayload."""
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

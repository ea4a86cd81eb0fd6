"""JSON objects in requests that engines need as text, encoded only once because large schemas take long."""

from typing import Any

import orjson


class WrittenJson(dict[str, Any]):
    """A JSON object and its text."""

    def __init__(self, value: dict[str, Any]) -> None:
        """Raise TypeError if it cannot be written: orjson reads deeper nesting than it writes."""
        super().__init__(value)
        self.text = orjson.dumps(value).decode()


def text_of(value: dict[str, Any]) -> str:
    """Return an object as JSON text, without encoding it again if it comes from a valid request."""
    return value.text if isinstance(value, WrittenJson) else orjson.dumps(value).decode()

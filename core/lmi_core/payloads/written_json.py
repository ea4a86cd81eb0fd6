"""JSON objects of requests that engines get as text, which is written once: a schema of megabytes takes a while."""

from typing import Any

import orjson


class WrittenJson(dict[str, Any]):
    """A JSON object with its text."""

    def __init__(self, value: dict[str, Any]) -> None:
        """Raise TypeError for one that cannot be written: orjson reads deeper nesting than it writes."""
        super().__init__(value)
        self.text = orjson.dumps(value).decode()


def text_of(value: dict[str, Any]) -> str:
    """Return an object as JSON, which one of a valid request has with it."""
    return value.text if isinstance(value, WrittenJson) else orjson.dumps(value).decode()

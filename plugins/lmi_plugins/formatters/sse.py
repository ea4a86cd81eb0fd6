"""`sse`: the chunks of `jsonlines` as server-sent events."""

from typing import ClassVar

import orjson

from lmi_plugins.formatters.jsonlines import JsonLinesFormatter
from lmi_plugins.formatters.lmi_schema import JsonObject


class SseFormatter(JsonLinesFormatter):
    name: ClassVar[str] = "sse"
    content_type = "text/event-stream"

    def frame(self, chunk: JsonObject) -> bytes:
        return b"data: " + orjson.dumps(chunk) + b"\n\n"

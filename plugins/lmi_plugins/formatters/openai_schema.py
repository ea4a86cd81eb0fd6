"""What all answers of the OpenAI dialects have in common."""

from collections.abc import Mapping
from typing import Any

import orjson

from lmi_core.errors import LmiError
from lmi_core.generation import FinishReason

FINISH_REASONS: Mapping[FinishReason | None, str | None] = {
    None: None,
    "length": "length",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "error": "error",
    "abort": "abort",
}
DONE = b"data: [DONE]\n\n"


def event(content: object) -> bytes:
    """A server-sent event."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


def error_object(error: LmiError) -> dict[str, Any]:
    """An error after generation began, which is the server's own."""
    return {"error": {"message": error.message, "type": "server_error", "param": None, "code": error.kind}}


def error_events(error: LmiError) -> list[bytes]:
    """The end of a stream that failed."""
    return [event(error_object(error)), DONE]

"""What all answers of the OpenAI dialects have in common."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
from msgspec import structs

from lmi_core.errors import LmiError
from lmi_core.generation import FinishReason, Token

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


class ChunkEvents:
    """A stream's events, each a chunk with one choice. What is the same in all of them is written once."""

    def __init__(self, head: Mapping[str, object], include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage  # at the end, and so a null in each chunk before
        self._before = b"data: " + orjson.dumps({**head, "choices": []}).removesuffix(b"]}")
        self._after = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"

    def count(self, usage: object) -> None:
        """Have the chunks that follow tell this usage."""
        self._after = b'],"usage":' + orjson.dumps(usage) + b"}\n\n"

    def choice(self, choice: object) -> bytes:
        return self._before + orjson.dumps(choice) + self._after

    def first(self, choice: object, members: Mapping[str, object]) -> bytes:
        """A chunk that tells more than those that follow."""
        if not members:
            return self.choice(choice)
        return (
            self._before + orjson.dumps(choice) + b"]," + orjson.dumps(members)[1:-1] + self._after.removeprefix(b"]")
        )

    def end(self, usage: Callable[[], object]) -> list[bytes]:
        if not self._include_usage:
            return [DONE]
        return [event({**self._head, "choices": [], "usage": usage()}), DONE]


def with_itself(token: Token) -> Token:
    """Return the token with itself among the likeliest in its place, as the last and so the least likely of them."""
    likeliest = token.top_tokens
    if not likeliest or any(top.id == token.id for top in likeliest):
        return token
    return structs.replace(token, top_tokens=[*likeliest, token])


def error_object(error: LmiError) -> dict[str, Any]:
    """An error after generation began, which is the server's own."""
    return {"error": {"message": error.message, "type": "server_error", "param": None, "code": error.kind}}


def error_events(error: LmiError) -> list[bytes]:
    """The end of a stream that failed."""
    return [event(error_object(error)), DONE]

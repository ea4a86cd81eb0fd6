"""Events, finish reasons and error objects that the answers of OpenAI's dialects share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from msgspec import structs

from lmi_core.errors import LmiError
from lmi_core.generation.output import FinishReason, Token
from lmi_core.generation.parameters import GenerationParameters
from lmi_handlers.fields import vllm_schema

FINISH_REASONS: Mapping[FinishReason | None, str | None] = {**vllm_schema.FINISH_REASONS, None: None}
DONE = b"data: [DONE]\n\n"
# Members without a value that vLLM's server sends as null in whole answers.
ANSWER = dict.fromkeys(("service_tier", "kv_transfer_params", "ec_transfer_params", "metrics"))
CHOICE = dict.fromkeys(("token_ids", "routed_experts"))
PROMPT = dict.fromkeys(("prompt_logprobs", "prompt_token_ids"))


def event(content: object) -> bytes:
    """Return the content as a server-sent event of JSON."""
    return b"data: " + orjson.dumps(content) + b"\n\n"


class ChunkEvents:
    """The events of one stream, each a chunk with one choice; common parts are encoded once."""

    def __init__(self, head: Mapping[str, object], include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage  # in the last chunk; it is null in the others
        self._before = b"data: " + orjson.dumps({**head, "choices": []}).removesuffix(b"]}")
        self._after = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"

    def count(self, usage: object) -> None:
        """Add this usage to the following chunks."""
        self._after = b'],"usage":' + orjson.dumps(usage) + b"}\n\n"

    def choice(self, choice: object) -> bytes:
        return self._before + orjson.dumps(choice) + self._after

    def first(self, choice: object, members: Mapping[str, object]) -> bytes:
        """Return the event of a choice, with further members next to it."""
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
    """Return the token with itself appended to its `top_tokens`, if it is not among them."""
    likeliest = token.top_tokens
    if not likeliest or any(top.id == token.id for top in likeliest):
        return token
    return structs.replace(token, top_tokens=[*likeliest, token])


def stop_reason(
    parameters: GenerationParameters, stop_sequence: str | None, tokens: Sequence[Token]
) -> str | int | None:
    """Return vLLM's `stop_reason`: the stop string, or the id in `stop_token_ids`, that ended a sequence."""
    if stop_sequence is not None or not tokens:
        return stop_sequence
    last = tokens[-1].id
    return last if last in (getattr(parameters, "stop_token_ids", None) or ()) else None


def error_object(error: LmiError) -> dict[str, Any]:
    """Return the error object for a failure after generation began, which is the server's fault."""
    return {"error": {"message": error.message, "type": "server_error", "param": None, "code": error.kind}}


def error_events(error: LmiError) -> list[bytes]:
    """Return the last events of a stream that failed: the error, and `[DONE]`."""
    return [event(error_object(error)), DONE]

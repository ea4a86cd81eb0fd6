"""Errors in Anthropic's form, and their statuses."""

from typing import Any, ClassVar

import orjson

from lmi_core.calls.answer import json_answer
from lmi_core.errors import ContextLengthExceeded, InvalidPayload, LmiError, Overloaded
from lmi_core.handler import Answer
from lmi_core.served_model import ServedModel
from lmi_handlers.base.statuses import Statuses

OVERLOADED_STATUS = 529  # defined by Anthropic
STATUSES = Statuses(overloaded=OVERLOADED_STATUS)
THROTTLE = "throttle_error_http_code"
REQUEST_ID_HEADER = "request-id"  # Anthropic's clients include it in their errors
TYPES = {
    STATUSES.invalid: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED_STATUS: "overloaded_error",
}


class ThreadRefused(InvalidPayload):
    """A request that refers to a conversation on the server; after this error, Anthropic's client sends the whole
    conversation.
    """

    details: ClassVar[dict[str, str]] = {"error_code": "thread_unsupported_request"}


def error_answer(error: LmiError, model: ServedModel | None) -> Answer:
    configured = model is not None and THROTTLE in model.server.model_fields_set
    status = STATUSES.of(error, model if configured else None)
    content = error_content(_type(error, status), _message(error))
    if isinstance(error, ThreadRefused):
        content["error"]["details"] = error.details
    return json_answer(content, status)


def stream_error(error: LmiError, request_id: str) -> dict[str, Any]:
    """Return the content of an error event."""
    return error_content(_type(error, STATUSES.of(error)), error.message, request_id)


def error_content(kind: str, message: str, request_id: str | None = None) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def add_request_id(answer: Answer, request_id: str) -> Answer:
    """Return the error with the request's id in its body and in Anthropic's header."""
    body = orjson.dumps({**orjson.loads(answer.body), "request_id": request_id})
    return Answer(answer.status, answer.content_type, body, answer.ignored, {REQUEST_ID_HEADER: request_id})


def type_of_status(status: int) -> str:
    return TYPES.get(status, "api_error")


def _type(error: LmiError, status: int) -> str:
    if isinstance(error, Overloaded):
        return "rate_limit_error" if status == 429 else "overloaded_error"
    return type_of_status(status)


def _message(error: LmiError) -> str:
    """Return the message; for a prompt that is too long, in the words that Claude Code and LiteLLM expect."""
    if not isinstance(error, ContextLengthExceeded) or error.prompt_tokens is None:
        return error.message
    return f"prompt is too long: {error.prompt_tokens} tokens > {error.max_prompt_tokens} maximum. {error.message}"

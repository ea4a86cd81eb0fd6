"""The closed family of errors, each of a `kind` that a dialect maps to its own status and body."""

import re
from collections.abc import Collection
from typing import ClassVar, Self

from lmi_core.errors.did_you_mean import did_you_mean

MAX_NAME_LENGTH = 80  # the maximum length of a name, or of a value, quoted in a message
MAX_MESSAGE_LENGTH = 4000
# A name in backticks, or a run of characters without blanks, that is too long to quote: a client may have sent a
# megabyte, which would go into the response and the log.
NAME = re.compile(r"`([^`]*)`")
LONG_RUN = re.compile(rf"(\S{{{MAX_NAME_LENGTH}}})\S{{200,}}")


class LmiError(Exception):
    """An error with a stable `kind` and a message written for the person who caused it."""

    kind: ClassVar[str] = "internal"
    retry_after: float | None = None  # seconds after which the client should retry
    _bounded: ClassVar[bool] = True  # whether overlong quotations in the message are cut

    def __init_subclass__(cls, kind: str | None = None) -> None:
        """Set the `kind`; by default that of the base class."""
        cls.kind = kind or cls.kind

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """Set the seconds after which to retry, if known."""
        message = message.encode(errors="backslashreplace").decode()  # it may quote bytes that are not UTF-8
        self.message = _truncate(message) if self._bounded and len(message) > MAX_NAME_LENGTH else message
        super().__init__(self.message)
        if retry_after is not None:
            self.retry_after = retry_after


class ConfigurationError(LmiError, kind="configuration"):
    """A model directory, a property or a plugin is invalid, which prevents the start."""

    _bounded = False


class PluginError(ConfigurationError, kind="plugin"):
    """A plugin cannot be loaded, or its name is taken or unknown."""


class InvalidPayload(LmiError, kind="invalid_payload"):
    """The payload cannot be read as a request of its dialect."""


class InvalidParameter(LmiError, kind="invalid_parameter"):
    """A generation parameter that the backend does not support, or a value out of its range."""


class ContextLengthExceeded(InvalidParameter, kind="context_length_exceeded"):
    """The prompt, or the prompt together with the requested tokens, exceeds the model's context length."""

    def __init__(self, message: str, prompt_tokens: int | None = None, max_prompt_tokens: int | None = None) -> None:
        """Set both numbers if the prompt alone is too long."""
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.max_prompt_tokens = max_prompt_tokens


class PayloadTooLarge(LmiError, kind="payload_too_large"):
    """The request body is larger than `max_request_size`, or has more members than `max_request_members`."""


class BodyTimeout(LmiError, kind="body_timeout"):
    """The request's body arrived too slowly."""


class UnsupportedEncoding(LmiError, kind="unsupported_encoding"):
    """The request's body has a Content-Encoding that the server cannot decode."""


class ModelNotFound(LmiError, kind="model_not_found"):
    """No model of that name is served, or several models are served and the request names none."""


class ModelExists(LmiError, kind="model_exists"):
    """A model of the given name and version is registered already."""


class InvalidModel(LmiError, kind="invalid_model"):
    """The registered model cannot be fetched, read or loaded."""

    _bounded = False


class OutOfMemory(ConfigurationError, kind="out_of_memory"):
    """The model does not fit into the free memory, according to the plan or while loading."""


class ResponseNotFound(LmiError, kind="response_not_found"):
    """No stored response has the given id; `field` names the field of the id."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class AdapterNotFound(LmiError, kind="adapter_not_found"):
    """The model has no adapter of the requested name."""

    @classmethod
    def of(cls, name: str, known: Collection[str]) -> Self:
        """Return the error for an unknown name, which lists the known ones."""
        names = ", ".join(sorted(known)) or "this model has none"
        return cls(f"there is no adapter `{name}`.{did_you_mean(name, known)} Known: {names}")


class AdapterExists(LmiError, kind="adapter_exists"):
    """The model already has an adapter of the given name."""


class Unauthorized(LmiError, kind="unauthorized"):
    """The request has no credential, such as an API key, or an invalid one."""


class Forbidden(LmiError, kind="forbidden"):
    """The client is not allowed to make this request."""


class InvalidAdapter(LmiError, kind="invalid_adapter"):
    """A LoRA adapter that cannot be read or does not fit the model."""


class ModelNotReady(LmiError, kind="model_not_ready"):
    """The model is still loading, or the server is shutting down."""

    retry_after: float | None = 5.0  # loading takes seconds to minutes; meanwhile another server may take the request


class Overloaded(LmiError, kind="overloaded"):
    """The model's queue is full, or the request cannot start within `option.queue_timeout`."""

    retry_after = 1.0


class QueueTimeout(Overloaded):
    """The request's turn did not come within `option.queue_timeout`."""


class RateLimited(LmiError, kind="rate_limited"):
    """The client's API key has exceeded its limits; `retry_after` is in seconds."""

    retry_after = 1.0


class BackendUnhealthy(LmiError, kind="backend_unhealthy"):
    """The engine is down or restarting."""


class BackendGivenUp(LmiError, kind="backend_given_up"):
    """Every model's engine has failed permanently, which stops the server."""


class GenerationFailed(LmiError, kind="generation_failed"):
    """The engine failed while it processed this request."""


class GenerationTimeout(LmiError, kind="generation_timeout"):
    """The answer or its next token exceeded the time limit of an option or of the request."""


class RequestAborted(LmiError, kind="aborted"):
    """Another client aborted the request, for which the dialect has no finish reason."""


class FormatterFailed(LmiError, kind="formatter_failed"):
    """A formatter or the model function raised an exception, or returned a wrong type."""


def _short(name: re.Match[str]) -> str:
    return name[0] if len(name[1]) <= MAX_NAME_LENGTH else f"`{name[1][:MAX_NAME_LENGTH]}...`"


def _truncate(message: str) -> str:
    """Return a message, truncated if very long."""
    cut = LONG_RUN.sub(r"\1...", NAME.sub(_short, message))
    return cut if len(cut) <= MAX_MESSAGE_LENGTH else cut[:MAX_MESSAGE_LENGTH] + "..."

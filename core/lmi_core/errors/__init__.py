"""The closed family of errors, each of a `kind` that a dialect maps to its own status and body."""

import re
from collections.abc import Collection
from typing import ClassVar, Self

from lmi_core.errors.did_you_mean import did_you_mean

MAX_NAME_LENGTH = 80  # of a name that a message repeats, as of values
MAX_MESSAGE_LENGTH = 4000
# A name between backticks, and a run of characters without a blank, that are too long to repeat: a client may have
# given a megabyte, which would come back in the answer and go to the log.
NAME = re.compile(r"`([^`]*)`")
LONG_RUN = re.compile(rf"(\S{{{MAX_NAME_LENGTH}}})\S{{200,}}")


class LmiError(Exception):
    """An error with a stable `kind` and a message written for the person who caused it."""

    kind: ClassVar[str] = "internal"
    retry_after: float | None = None  # seconds after which the same request may be answered
    _bounded: ClassVar[bool] = True  # whether the message is cut where it repeats what is very long

    def __init__(self, message: str) -> None:
        message = message.encode(errors="backslashreplace").decode()  # it may quote bytes that are not UTF-8
        self.message = _cut(message) if self._bounded and len(message) > MAX_NAME_LENGTH else message
        super().__init__(self.message)


class ConfigurationError(LmiError):
    """A model directory, a property or a plugin is invalid, which stops start-up."""

    kind = "configuration"
    _bounded = False


class PluginError(ConfigurationError):
    """A plugin cannot be loaded, or its name is taken or unknown."""

    kind = "plugin"


class InvalidPayload(LmiError):
    """The payload cannot be read as a request of its dialect."""

    kind = "invalid_payload"


class InvalidParameter(LmiError):
    """A generation parameter that the backend does not support, or a value out of its range."""

    kind = "invalid_parameter"


class ContextLengthExceeded(InvalidParameter):
    """The prompt, or the prompt together with the requested tokens, exceeds the model's context length."""

    kind = "context_length_exceeded"

    def __init__(self, message: str, prompt_tokens: int | None = None, max_prompt_tokens: int | None = None) -> None:
        """Set both numbers if the prompt alone is too long."""
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.max_prompt_tokens = max_prompt_tokens


class PayloadTooLarge(LmiError):
    """The request body is larger than `max_request_size`, or has more members than `max_request_members`."""

    kind = "payload_too_large"


class BodyTimeout(LmiError):
    """The request's body arrived too slowly."""

    kind = "body_timeout"


class UnsupportedEncoding(LmiError):
    """The request's body has a Content-Encoding that the server cannot decode."""

    kind = "unsupported_encoding"


class ModelNotFound(LmiError):
    """No model of that name is served, or several models are served and the request names none."""

    kind = "model_not_found"


class ModelExists(LmiError):
    """A model of the given name and version is registered already."""

    kind = "model_exists"


class InvalidModel(LmiError):
    """The registered model cannot be fetched, read or loaded."""

    kind = "invalid_model"
    _bounded = False


class OutOfMemory(ConfigurationError):
    """The model does not fit into the free memory, according to the plan or while loading."""

    kind = "out_of_memory"


class ResponseNotFound(LmiError):
    """No stored answer has the id in the request; `field` is the name of the id's field."""

    kind = "response_not_found"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class AdapterNotFound(LmiError):
    """The model has no adapter of the requested name."""

    kind = "adapter_not_found"

    @classmethod
    def of(cls, name: str, known: Collection[str]) -> Self:
        """Return the error for an unknown name, which lists the known ones."""
        names = ", ".join(sorted(known)) or "this model has none"
        return cls(f"there is no adapter `{name}`.{did_you_mean(name, known)} Known: {names}")


class AdapterExists(LmiError):
    """The model already has an adapter of the given name."""

    kind = "adapter_exists"


class Unauthorized(LmiError):
    """The request has no credential, such as an API key, or an invalid one."""

    kind = "unauthorized"


class Forbidden(LmiError):
    """The client is not allowed to make this request."""

    kind = "forbidden"


class InvalidAdapter(LmiError):
    """A LoRA adapter that cannot be read or does not fit the model."""

    kind = "invalid_adapter"


class ModelNotReady(LmiError):
    """The model is still loading, or the server is shutting down."""

    kind = "model_not_ready"
    retry_after: float | None = 5.0  # loading takes seconds to minutes; another server may take the request before


class Overloaded(LmiError):
    """The model's queue is full, or the request cannot start within `option.queue_timeout`."""

    kind = "overloaded"
    retry_after = 1.0

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """Set the seconds after which to retry, if known."""
        super().__init__(message)
        if retry_after is not None:
            self.retry_after = retry_after


class QueueTimeout(Overloaded):
    """The request's turn did not come within `option.queue_timeout`."""


class RateLimited(LmiError):
    """The client's API key has exceeded its limits; `retry_after` is in seconds."""

    kind = "rate_limited"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BackendUnhealthy(LmiError):
    """The engine is down or restarting."""

    kind = "backend_unhealthy"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """Set the seconds after which an engine may accept requests again, if one is starting."""
        super().__init__(message)
        self.retry_after = retry_after


class BackendGivenUp(LmiError):
    """Every model's engine has failed permanently, which ends the server."""

    kind = "backend_given_up"


class GenerationFailed(LmiError):
    """The engine failed while it processed this request."""

    kind = "generation_failed"


class GenerationTimeout(LmiError):
    """The answer or its next token exceeded the time limit of an option or of the request."""

    kind = "generation_timeout"


class RequestAborted(LmiError):
    """Another client aborted the request, for which the dialect has no finish reason."""

    kind = "aborted"


class FormatterFailed(LmiError):
    """The model's own code raised: an input formatter, an output formatter or the model function."""

    kind = "formatter_failed"


def _short(name: re.Match[str]) -> str:
    return name[0] if len(name[1]) <= MAX_NAME_LENGTH else f"`{name[1][:MAX_NAME_LENGTH]}...`"


def _cut(message: str) -> str:
    """Return a message, truncated if very long."""
    cut = LONG_RUN.sub(r"\1...", NAME.sub(_short, message))
    return cut if len(cut) <= MAX_MESSAGE_LENGTH else cut[:MAX_MESSAGE_LENGTH] + "..."

"""The closed family of errors, each of a `kind` that a dialect maps to its own status and body."""

from collections.abc import Collection
from typing import ClassVar, Self

from lmi_core.did_you_mean import did_you_mean


class LmiError(Exception):
    """An error with a stable `kind` and a message written for the person who caused it."""

    kind: ClassVar[str] = "internal"

    def __init__(self, message: str) -> None:
        self.message = message.encode(errors="backslashreplace").decode()  # may quote bytes that are not UTF-8
        super().__init__(self.message)


class ConfigurationError(LmiError):
    """A model directory, a property or a plugin is invalid, which stops start-up."""

    kind = "configuration"


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
        """Set both numbers where it is the prompt alone that is too long."""
        super().__init__(message)
        self.prompt_tokens = prompt_tokens
        self.max_prompt_tokens = max_prompt_tokens


class PayloadTooLarge(LmiError):
    """The request body is larger than `max_request_size`."""

    kind = "payload_too_large"


class ModelNotFound(LmiError):
    """No model of that name is served, or several models are served and the request names none."""

    kind = "model_not_found"


class ResponseNotFound(LmiError):
    """No answer of the id in the request is kept for later requests; `field` is where the request has the id."""

    kind = "response_not_found"

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class AdapterNotFound(LmiError):
    """The model has no adapter of the requested name."""

    kind = "adapter_not_found"

    @classmethod
    def of(cls, name: str, known: Collection[str]) -> Self:
        """Return the error for a name that is none of the known adapters'."""
        names = ", ".join(sorted(known)) or "this model has none"
        return cls(f"there is no adapter `{name}`.{did_you_mean(name, known)} Known: {names}")


class AdapterExists(LmiError):
    """The model already has an adapter of the given name."""

    kind = "adapter_exists"


class Forbidden(LmiError):
    """The client's address is not allowed to make this request."""

    kind = "forbidden"


class InvalidAdapter(LmiError):
    """A LoRA adapter that cannot be read or does not fit the model."""

    kind = "invalid_adapter"


class ModelNotReady(LmiError):
    """The model is still loading, or the server is shutting down."""

    kind = "model_not_ready"


class Overloaded(LmiError):
    """The model's queue is full."""

    kind = "overloaded"


class BackendUnhealthy(LmiError):
    """The engine is down or restarting."""

    kind = "backend_unhealthy"


class BackendGivenUp(LmiError):
    """Every model's engine has failed for good, which ends the server."""

    kind = "backend_given_up"


class GenerationFailed(LmiError):
    """The engine failed while it processed this request."""

    kind = "generation_failed"


class GenerationTimeout(LmiError):
    """The next generation step did not come within `option.predict_timeout`."""

    kind = "generation_timeout"


class RequestAborted(LmiError):
    """Another client aborted the request, and the dialect has no finish reason for that."""

    kind = "aborted"


class FormatterFailed(LmiError):
    """The model's own code raised: an input formatter, an output formatter or the model function."""

    kind = "formatter_failed"

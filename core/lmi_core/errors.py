"""The one closed family of errors. A dialect maps a kind to its own status and body; nothing here knows HTTP."""

from typing import ClassVar


class LmiError(Exception):
    """An error with a stable `kind` and a message written for the person who caused it."""

    kind: ClassVar[str] = "internal"

    def __init__(self, message: str) -> None:
        self.message = message.encode(errors="backslashreplace").decode()  # it may quote bytes that are no UTF-8
        super().__init__(self.message)


class ConfigurationError(LmiError):
    """A model directory, a property or a plugin is wrong: start-up stops."""

    kind = "configuration"


class PluginError(ConfigurationError):
    """A plugin cannot be loaded, or its name is taken or unknown."""

    kind = "plugin"


class InvalidPayload(LmiError):
    """The payload cannot be read as a request of its dialect."""

    kind = "invalid_payload"


class InvalidParameter(LmiError):
    """A generation parameter that the backend does not take, or a value that it cannot work with."""

    kind = "invalid_parameter"


class ContextLengthExceeded(InvalidParameter):
    """The prompt, or the prompt and the tokens asked for, do not fit in the model's context."""

    kind = "context_length_exceeded"


class PayloadTooLarge(LmiError):
    """The request body is larger than `max_request_size`."""

    kind = "payload_too_large"


class ModelNotFound(LmiError):
    """No model of that name is served here, or several are and none was named."""

    kind = "model_not_found"


class AdapterNotFound(LmiError):
    """The model has no adapter of that name."""

    kind = "adapter_not_found"


class AdapterExists(LmiError):
    """The model has an adapter of that name already."""

    kind = "adapter_exists"


class Forbidden(LmiError):
    """Whoever calls from that address may not do this."""

    kind = "forbidden"


class InvalidAdapter(LmiError):
    """A LoRA adapter that cannot be read, or that does not fit the model."""

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
    """No model is left that could take requests again: the server ends."""

    kind = "backend_given_up"


class GenerationFailed(LmiError):
    """The engine failed while it worked on this request."""

    kind = "generation_failed"


class GenerationTimeout(LmiError):
    """The next generation step did not come within `option.predict_timeout`."""

    kind = "generation_timeout"


class RequestAborted(LmiError):
    """Somebody else ended the request, and its dialect has no other way to say so."""

    kind = "aborted"


class FormatterFailed(LmiError):
    """Code of the model's own raised: an input or output formatter, or its model function."""

    kind = "formatter_failed"

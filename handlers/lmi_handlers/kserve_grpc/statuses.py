"""gRPC's status codes of errors."""

from grpc import StatusCode

from lmi_core.errors import LmiError

STATUS_CODES = {
    "unauthorized": StatusCode.UNAUTHENTICATED,
    "forbidden": StatusCode.PERMISSION_DENIED,
    "payload_too_large": StatusCode.RESOURCE_EXHAUSTED,  # gRPC's own for a message that is too large
    "model_not_found": StatusCode.NOT_FOUND,
    "adapter_not_found": StatusCode.NOT_FOUND,
    "model_not_ready": StatusCode.UNAVAILABLE,
    "rate_limited": StatusCode.RESOURCE_EXHAUSTED,
    "overloaded": StatusCode.UNAVAILABLE,
    "backend_unhealthy": StatusCode.UNAVAILABLE,
    "generation_failed": StatusCode.INTERNAL,
    "generation_timeout": StatusCode.DEADLINE_EXCEEDED,
    "aborted": StatusCode.CANCELLED,
    "formatter_failed": StatusCode.INTERNAL,
    "internal": StatusCode.INTERNAL,
}


def status_code(error: LmiError) -> StatusCode:
    """Return the code of an error; what is wrong with the request itself is an invalid argument."""
    return STATUS_CODES.get(error.kind, StatusCode.INVALID_ARGUMENT)

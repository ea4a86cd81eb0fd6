"""The HTTP status of each kind of error, from which the tables of the dialects derive."""

from http import HTTPStatus
from typing import Any

from lmi_core.errors import LmiError, Overloaded
from lmi_core.served_model import ServedModel

# The usual HTTP status of each kind of error; all other kinds have 400.
STATUSES = {
    "unauthorized": 401,
    "forbidden": 403,
    "payload_too_large": 413,
    "body_timeout": 408,
    "unsupported_encoding": 415,
    "model_not_found": 404,
    "response_not_found": 404,
    "adapter_not_found": 404,
    "model_not_ready": 503,
    "overloaded": 503,
    "rate_limited": 429,
    "backend_unhealthy": 503,
    "out_of_memory": 507,
    "generation_failed": 500,
    "generation_timeout": 504,
    "aborted": 499,  # not standardized; nginx and Triton use it
    "formatter_failed": 424,  # code of the model directory raised an exception
    "internal": 500,
}
# DJLServing's names for these errors, which are names of Java exceptions.
TYPES: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "ModelNotFoundException",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowedException",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableException",
    HTTPStatus.INSUFFICIENT_STORAGE: "WlmOutOfMemoryException",
}
NO_ROUTE = "ResourceNotFoundException"


class Statuses(dict[str, int]):
    """A dialect's statuses by kind of error: `invalid` for invalid requests, and exceptions from the usual ones."""

    def __init__(self, invalid: int = 400, **different: int) -> None:
        super().__init__(STATUSES | different)
        self.invalid = invalid

    def of(self, error: LmiError, model: ServedModel | None = None) -> int:
        """Return the status of an error; for an overloaded model, the one in its configuration."""
        if model is not None and isinstance(error, Overloaded):
            return model.server.throttle_error_http_code
        return self.get(error.kind, self.invalid)


USUAL = Statuses()


def front_end_error(message: str, status: int, kind: str | None = None) -> dict[str, Any]:
    """Return an error in LMI's form, with the members of DJLServing's own."""
    otherwise = "BadRequestException" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "InternalServerException"
    return {
        "error": message,
        "code": status,
        "type": kind or TYPES.get(status, otherwise),
        "message": message,
    }

"""Errors of DJLServing's front end, which are about a request before any model sees it."""

from http import HTTPStatus
from typing import Any

# DJLServing's names for these errors, which are names of Java exceptions.
TYPES: dict[int, str] = {
    HTTPStatus.NOT_FOUND: "ModelNotFoundException",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowedException",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailableException",
    HTTPStatus.INSUFFICIENT_STORAGE: "WlmOutOfMemoryException",
}
NO_ROUTE = "ResourceNotFoundException"


def front_end_error(message: str, status: int, kind: str | None = None) -> dict[str, Any]:
    """Return an error in LMI's form, with the members of DJLServing's own."""
    otherwise = "BadRequestException" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "InternalServerException"
    return {
        "error": message,
        "code": status,
        "type": kind or TYPES.get(status, otherwise),
        "message": message,
    }

"""gRPC's status codes of errors."""

from grpc import StatusCode

from lmi_core.errors import LmiError
from lmi_handlers.base.statuses import USUAL

# The code for each HTTP status; any other is an invalid argument.
CODES = {
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    408: StatusCode.DEADLINE_EXCEEDED,
    413: StatusCode.RESOURCE_EXHAUSTED,  # gRPC's own for a message that is too large
    424: StatusCode.INTERNAL,
    429: StatusCode.RESOURCE_EXHAUSTED,
    499: StatusCode.CANCELLED,
    500: StatusCode.INTERNAL,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}


def status_code(error: LmiError) -> StatusCode:
    return CODES.get(USUAL.of(error), StatusCode.INVALID_ARGUMENT)

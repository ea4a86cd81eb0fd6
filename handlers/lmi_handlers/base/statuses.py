"""The HTTP status of each kind of error, from which the tables of the dialects derive."""

from lmi_core.errors import LmiError

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


class Statuses(dict[str, int]):
    """A dialect's statuses by kind of error: `invalid` for invalid requests, and exceptions from the usual ones."""

    def __init__(self, invalid: int = 400, **different: int) -> None:
        super().__init__(STATUSES | different)
        self.invalid = invalid

    def of(self, error: LmiError) -> int:
        return self.get(error.kind, self.invalid)


USUAL = Statuses()

"""Ids of requests: the clients' own, and unguessable ones."""

import os

from aiohttp import web

REQUEST_ID_HEADER = "x-request-id"
INFERENCE_ID_HEADER = "X-Amzn-SageMaker-Inference-Id"  # the client's name of a request, or of SageMaker's own making
MAX_LENGTH = 128  # characters of a client's id
LENGTH = 16  # bytes
AT_ONCE = 256  # ids that are made of the random bytes that the system gives in one call

_unused = bytearray()


def request_id(request: web.Request) -> str:
    """Return the client's request id if it is valid, otherwise a new one."""
    given = request.headers.get(REQUEST_ID_HEADER) or request.headers.get(INFERENCE_ID_HEADER)
    return (given and given_id(given)) or new_request_id()


def given_id(given: str) -> str | None:
    """Return a client's id, truncated to the maximum length; None if it is not printable ASCII."""
    cut = given[:MAX_LENGTH]
    return cut if cut and cut.isascii() and cut.isprintable() else None


def new_request_id() -> str:
    """Return 32 random hexadecimal digits."""
    if not _unused:
        _unused.extend(os.urandom(LENGTH * AT_ONCE))
    found = _unused[-LENGTH:].hex()
    del _unused[-LENGTH:]
    return found

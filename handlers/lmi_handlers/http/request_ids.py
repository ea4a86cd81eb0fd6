"""Ids of requests that bring none, which nobody can guess."""

import os

LENGTH = 16  # bytes
AT_ONCE = 256  # ids that are made of the random bytes that the system gives in one call

_unused = bytearray()


def new_request_id() -> str:
    """Return 32 random hexadecimal digits."""
    if not _unused:
        _unused.extend(os.urandom(LENGTH * AT_ONCE))
    found = _unused[-LENGTH:].hex()
    del _unused[-LENGTH:]
    return found

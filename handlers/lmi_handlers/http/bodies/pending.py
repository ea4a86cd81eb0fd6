"""The memory of incoming bodies of all connections."""

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from lmi_core.errors import Overloaded

SHORT = 1 << 16  # bytes of a body that are always read: the size of a connection's buffers


class PendingBodies:
    """The bytes of incomplete or compressed bodies, bounded over all connections."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._taken = 0

    @contextmanager
    def body(self) -> Iterator["PendingBody"]:
        pending = PendingBody(self)
        try:
            yield pending
        finally:
            self._taken -= pending.taken

    def take(self, size: int) -> None:
        """Reserve as many more bytes. Raise Overloaded if the long bodies of all connections leave no room."""
        if self._taken + size > self._max:
            raise Overloaded(
                f"the bodies that are being received take {self._taken} of at most {self._max} bytes "
                "(max_pending_body_bytes)"
            )
        self._taken += size


class PendingBody:
    """The bytes reserved by one body; short bodies reserve none."""

    __slots__ = ("_bodies", "taken")

    def __init__(self, bodies: PendingBodies) -> None:
        self._bodies = bodies
        self.taken = 0

    def grow(self, size: int) -> None:
        """Reserve the missing bytes of a body of `size` bytes. Raise Overloaded if there is no room."""
        if size > SHORT:
            self._bodies.take(size - self.taken)
            self.taken = size


PENDING_BODIES = web.AppKey("pending_bodies", PendingBodies)

"""Reading of request bodies, within limits for each and for all together."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from lmi_core.errors import InvalidPayload, Overloaded, PayloadTooLarge
from lmi_core.host.beside_loop import READING
from lmi_handlers.http.bodies.compressed import body_encoding, decompressed

SHORT = 1 << 16  # bytes of a body that are always taken: as much as a connection has buffers


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


async def read_body(request: web.Request, limit: int) -> bytes:
    """Return the decompressed body; bodies are decompressed one by one, outside the event loop.

    Raise PayloadTooLarge as soon as it exceeds `limit` bytes, BodyTimeout if it arrives too slowly, Overloaded if the
    bodies of other connections leave no room, and UnsupportedEncoding.
    """
    encoding = body_encoding(request)
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    with request.app[PENDING_BODIES].body() as pending:
        body = await _received(request, limit, pending)
        if encoding is None or not body:
            return body
        return await READING.run(partial(decompressed, body, encoding, limit))


async def _received(request: web.Request, limit: int, pending: PendingBody) -> bytes:
    body = bytearray()
    try:
        while chunk := await request.content.readany():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
            pending.grow(len(body))
    except (web.RequestPayloadError, HttpProcessingError) as error:  # not framed as its headers say
        cause = error.__cause__ or error
        reason = " ".join(str(getattr(cause, "message", cause)).split())
        raise InvalidPayload(f"the body cannot be read: {reason}") from error
    return bytes(body)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body must be at most {limit} bytes (max_request_size)")

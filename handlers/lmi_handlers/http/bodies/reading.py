"""Reading of request bodies, within limits for each and for all together."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from lmi_core.errors import InvalidPayload, Overloaded, PayloadTooLarge
from lmi_core.host.off_loop import READING
from lmi_handlers.http.bodies.compressed import body_encoding, decompress

SHORT = 1 << 16  # bytes of a body that are always read: the size of a connection's buffers


class PendingBodies:
    """The bytes of incomplete or compressed bodies, bounded over all connections; short bodies count as none."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._taken = 0

    @contextmanager
    def body(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves the bytes of a growing body of this size, or raises Overloaded."""
        taken = 0

        def grow(size: int) -> None:
            nonlocal taken
            if size > SHORT:
                self._take(size - taken)
                taken = size

        try:
            yield grow
        finally:
            self._taken -= taken

    def _take(self, size: int) -> None:
        if self._taken + size > self._max:
            raise Overloaded(
                f"the bodies that are being received take {self._taken} of at most {self._max} bytes "
                "(max_pending_body_bytes)"
            )
        self._taken += size


PENDING_BODIES = web.AppKey("pending_bodies", PendingBodies)


async def read_body(request: web.Request, limit: int) -> bytes:
    """Return the decompressed body; bodies are decompressed one by one, outside the event loop.

    Raise PayloadTooLarge as soon as it exceeds `limit` bytes, BodyTimeout if it arrives too slowly, Overloaded if the
    bodies of other connections leave no room, and UnsupportedEncoding.
    """
    encoding = body_encoding(request) if hdrs.CONTENT_ENCODING in request.headers else None
    if (request.content_length or 0) > limit:
        raise _too_large(limit)
    with request.app[PENDING_BODIES].body() as grow:
        body = await _receive(request, limit, grow)
        if encoding is None or not body:
            return body
        return await READING.run(partial(decompress, body, encoding, limit))


async def _receive(request: web.Request, limit: int, grow: Callable[[int], None]) -> bytes:
    body = bytearray()
    try:
        while chunk := await request.content.readany():
            body += chunk
            if len(body) > limit:
                raise _too_large(limit)
            grow(len(body))
    except (web.RequestPayloadError, HttpProcessingError) as error:  # framed differently than its headers declare
        cause = error.__cause__ or error
        reason = " ".join(str(getattr(cause, "message", cause)).split())
        raise InvalidPayload(f"the body cannot be read: {reason}") from error
    return bytes(body)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body must be at most {limit} bytes (max_request_size)")

"""Reading of request bodies, within limits for each and for all together."""

from functools import partial

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from lmi_core.errors import InvalidPayload, PayloadTooLarge
from lmi_core.host.beside_loop import READING
from lmi_handlers.http.bodies.compressed import body_encoding, decompressed
from lmi_handlers.http.bodies.pending import PENDING_BODIES, PendingBody


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
    except (web.RequestPayloadError, HttpProcessingError) as error:  # framed differently than its headers declare
        cause = error.__cause__ or error
        reason = " ".join(str(getattr(cause, "message", cause)).split())
        raise InvalidPayload(f"the body cannot be read: {reason}") from error
    return bytes(body)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body must be at most {limit} bytes (max_request_size)")

"""Request bodies that are compressed, of which a few kilobytes may hold gigabytes."""

from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web


def is_compressed(request: web.Request) -> bool:
    return hdrs.CONTENT_ENCODING in request.headers


@web.middleware
async def close_behind_unread(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Close the connection behind the answer to a compressed body that was not read to its end.

    aiohttp otherwise reads on for a while, so that the client gets the answer, and decompresses what it reads.
    """
    response = await handler(request)
    if is_compressed(request) and not request.content.at_eof():
        await response.prepare(request)
        await response.write_eof()
        request.protocol.force_close()
    return response

"""Connections whose request was answered before its body was read to the end."""

from collections.abc import Awaitable, Callable

from aiohttp import web

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]  # aiohttp calls this a handler


def is_left_unread(request: web.Request) -> bool:
    """Return whether to stop reading the body, because it arrived too slowly.

    Otherwise aiohttp reads for a while, so that the client gets the answer.
    """
    content = request.content
    return not content.at_eof() and content.exception() is not None


async def send_and_close(request: web.Request, response: web.StreamResponse) -> None:
    await response.prepare(request)
    await response.write_eof()
    request.protocol.force_close()


@web.middleware
async def close_behind_unread(request: web.Request, handler: Responder) -> web.StreamResponse:
    """Close the connection after the answer to an unread body."""
    response = await handler(request)
    if is_left_unread(request):
        await send_and_close(request, response)
    return response

"""The connections of a server, limited in number and time."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web

from lmi_handlers.http.connections.connection import Connection, Phase
from lmi_handlers.http.connections.limits import ConnectionLimits

logger = logging.getLogger(__name__)

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MAX_REFUSED = 64  # refused connections that get an error response and time to read it; others are closed at once
VERSIONS = (HttpVersion10, HttpVersion11)  # responses in others, such as 0.9, may have no status line
AT_A_TIME = 500  # connections checked before other tasks run

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]  # aiohttp calls this a handler


class Connections:
    """All connections of a server. They are closed if they take too long, or if others need their place."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._max = limits.affordable_connections
        self._by_protocol: dict[asyncio.Protocol, Connection] = {}
        # Connections that still have to send a request, or the rest of one, the longest wait first. Some that have sent
        # everything since are still included.
        self._waiting: OrderedDict[Connection, None] = OrderedDict()
        self._refused: list[Connection] = []

    def accept(self, new_protocol: Callable[[], asyncio.Protocol]) -> Connection:
        """Return the protocol of a new connection, in front of aiohttp's."""
        return Connection(new_protocol(), self.limits, self._open, self._close)

    def _open(self, connection: Connection) -> bool:
        """Add a new connection, and return whether to serve it; an idle connection makes room for it."""
        if len(self._by_protocol) >= self._max and not self._close_longest_waiting():
            self._refuse(connection)
            return False
        self._by_protocol[connection.inner] = connection
        self._waiting[connection] = None
        return True

    def _close(self, connection: Connection) -> None:
        self._by_protocol.pop(connection.inner, None)
        self._waiting.pop(connection, None)

    @web.middleware
    async def follow(self, request: web.Request, handler: Responder) -> web.StreamResponse:
        """Track each request while it is answered, and close the connection after an unread body."""
        connection = self._by_protocol.get(request.protocol)
        if connection is None:  # it was just closed
            raise asyncio.CancelledError
        connection.begin(request)
        if not connection.awaits_client:
            self._waiting.pop(connection, None)
        try:
            if request.version not in VERSIONS:
                return _refusal(505)
            if request.version == HttpVersion10 and hdrs.TRANSFER_ENCODING in request.headers:  # RFC 9112 section 6.1
                return _refusal(400, "HTTP/1.0 has no Transfer-Encoding")
            response = await handler(request)
            if is_left_unread(request):
                await send_and_close(request, response)
            return response
        finally:
            connection.end()
            if connection.inner in self._by_protocol:
                self._waiting[connection] = None
                self._waiting.move_to_end(connection)

    async def sweep(self) -> None:
        """Close connections whose phase has lasted too long, as long as the server runs."""
        while True:
            await asyncio.sleep(self.limits.sweep_interval)
            late: Counter[Phase] = Counter()
            refused, self._refused = self._refused, []
            for index, connection in enumerate([*self._by_protocol.values()], start=1):
                if (phase := connection.check(asyncio.get_running_loop().time())) is not None:
                    late[phase] += 1
                if index % AT_A_TIME == 0:
                    await asyncio.sleep(0)
            for connection in refused:
                connection.transport.abort()
            for reason, count in late.items():
                level = logging.DEBUG if reason is Phase.IDLE else logging.INFO
                logger.log(level, "closed %d connections: %s", count, reason)

    def _close_longest_waiting(self) -> bool:
        """Close the connection that has waited longest for its client; return False if none waits."""
        while self._waiting:
            connection, _ = self._waiting.popitem(last=False)
            if connection.awaits_client:
                connection.transport.abort()
                self._by_protocol.pop(connection.inner, None)
                return True
        return False

    def _refuse(self, connection: Connection) -> None:
        if len(self._refused) >= MAX_REFUSED:
            connection.transport.abort()
            return
        connection.transport.write(REFUSAL)
        if connection.transport.can_write_eof():
            connection.transport.write_eof()
        self._refused.append(connection)


def _refusal(status: int, reason: str | None = None) -> web.Response:
    response = web.Response(status=status, text=reason)
    response.force_close()
    return response


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

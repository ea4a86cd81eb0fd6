"""The connections of a server, limited in number and time."""

import asyncio
import logging
import socket
import struct
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import cast

from aiohttp import HttpVersion10, HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter

from lmi_core.errors import BodyTimeout
from lmi_handlers.http.connections.limits import ConnectionLimits

logger = logging.getLogger(__name__)

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
MAX_REFUSED = 64  # refused connections that get an error response and time to read it; others are closed at once
VERSIONS = (HttpVersion10, HttpVersion11)  # responses in others, such as 0.9, may have no status line
AT_A_TIME = 500  # connections checked before other tasks run
MAX_UNSENT = 128 * 1024  # bytes that the kernel buffers for a client that does not read
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # makes the kernel, too, drop unread data

Responder = Callable[[web.Request], Awaitable[web.StreamResponse]]  # aiohttp calls this a handler


class Phase(StrEnum):
    """The phases in which the server waits, with their names in the log."""

    HEADERS = "no complete headers within header_timeout"
    BODY = "a body that arrived too slowly for body_timeout"
    ANSWER = "no answer"  # it is the server's turn, which the model's time limits bound
    WRITE = "an answer that was read too slowly for write_timeout"
    IDLE = "no request within keep_alive_timeout"


class Deadline:
    """The time since the start of a phase or, for bodies and answers, since enough bytes were transferred."""

    __slots__ = ("_limits", "_moved", "_since", "_turn", "phase")

    def __init__(self, limits: ConnectionLimits, now: float) -> None:
        self.phase = Phase.HEADERS
        self._limits = limits
        self._turn = 0
        self._since = now
        self._moved = 0

    def has_passed(self, phase: Phase, turn: int, moved: int, now: float) -> bool:
        """Return whether the phase has lasted too long.

        `turn` distinguishes requests, and `moved` is the number of bytes transferred so far.
        """
        seconds = self._seconds(phase)
        begins = phase is not self.phase or turn != self._turn
        if begins or moved - self._moved >= self._limits.min_transfer_rate * seconds:
            self.phase, self._turn, self._moved, self._since = phase, turn, moved, now
            return False
        return now - self._since > seconds

    def _seconds(self, phase: Phase) -> float:
        match phase:
            case Phase.HEADERS:
                return self._limits.header_timeout
            case Phase.BODY:
                return self._limits.body_timeout
            case Phase.WRITE:
                return self._limits.write_timeout
            case Phase.IDLE:
                return self._limits.keep_alive_timeout
            case Phase.ANSWER:
                return float("inf")


class Connection(asyncio.Protocol):
    """A connection, which passes everything to aiohttp's protocol and tracks what the server waits for."""

    __slots__ = (
        "_answered", "_closed", "_deadline", "_limits", "_opened", "_received", "_turn", "_writer",
        "inner", "request", "served", "transport",
    )  # fmt: skip

    def __init__(
        self,
        inner: asyncio.Protocol,
        limits: ConnectionLimits,
        opened: Callable[["Connection"], bool],
        closed: Callable[["Connection"], None],
    ) -> None:
        """`opened` returns whether to serve the new connection, and `closed` forgets it."""
        self.inner = inner
        self.transport: asyncio.Transport
        self.request: web.BaseRequest | None = None  # the request being served
        self.served = False
        self._limits, self._opened, self._closed = limits, opened, closed
        self._received = 0  # bytes received
        self._answered = -1  # bytes received before the last answer was made; -1 before the first answer
        self._turn = 0  # twice the number of requests so far, plus one between two of them
        self._writer: AbstractStreamWriter | None = None  # of the last answer
        self._deadline = Deadline(limits, asyncio.get_running_loop().time())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.served = self._opened(self)
        if self.served:
            if (client := self._socket()) is not None:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT)
            self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.served:
            self._received += len(data)
            self.inner.data_received(data)

    def pause_writing(self) -> None:
        if self.served:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self.served:
            self.inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed(self)
        if self.served:
            self.inner.connection_lost(exc)

    def begin(self, request: web.BaseRequest) -> None:
        """Record that a request is being answered."""
        self._turn += 1
        self.request, self._writer = request, request.writer

    def end(self) -> None:
        """Record that the answer is complete; parts of it may still be unsent."""
        self._turn += 1
        self.request, self._answered = None, self._received

    @property
    def awaits_client(self) -> bool:
        """Whether the server waits for a request or the rest of one."""
        return self.request is None or not self.request.content.is_eof()

    def check(self, now: float) -> Phase | None:
        """End the current phase if it has lasted too long, and return it; otherwise return None."""
        phase, moved = self._phase()
        if not self._deadline.has_passed(phase, self._turn, moved, now):
            return None
        self._finish(phase)
        return phase

    def _phase(self) -> tuple[Phase, int]:
        """Return the current phase, and the number of its transferred bytes."""
        if unwritten := self.transport.get_write_buffer_size():
            return Phase.WRITE, (self._writer.output_size if self._writer else 0) - unwritten
        if self.request is None:
            return (Phase.IDLE if self._received == self._answered else Phase.HEADERS), 0
        return (Phase.BODY if self.awaits_client else Phase.ANSWER), self._received

    def _finish(self, phase: Phase) -> None:
        content = self.request.content if self.request is not None else None
        if phase is Phase.BODY and content is not None and content.exception() is None:
            seconds, rate = self._limits.body_timeout, self._limits.min_transfer_rate
            content.set_exception(
                BodyTimeout(
                    f"the body arrived too slowly: the server waits {seconds:g} seconds for {rate} bytes per second"
                )
            )  # the reader of the body raises and answers it
            return
        if phase is Phase.WRITE and (client := self._socket()) is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()

    def _socket(self) -> socket.socket | None:
        """Return the socket of a connection over TCP."""
        if self.transport.is_closing():
            return None
        found: socket.socket | None = self.transport.get_extra_info("socket")
        return found if found is not None and found.family != socket.AF_UNIX else None


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
        interval = self.limits.sweep_interval
        while True:
            await asyncio.sleep(interval)
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

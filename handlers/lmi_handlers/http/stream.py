"""A response sent event by event."""

from collections.abc import Coroutine

from aiohttp import HttpVersion11, hdrs, web

from lmi_core.route import Framing

LAST_CHUNK = b"0\r\n\r\n"
EVENT_STREAM = "text/event-stream"  # the content type of server-sent events
KEEP_ALIVE = b": keep-alive\n\n"  # a comment of server-sent events, which clients skip


class Stream(web.StreamResponse):
    """A streamed response with one HTTP chunk per event, as clients expect, and one write for events sent together."""

    # aiohttp sets both for complete responses and web sockets, and has no public interface for them. A test checks the
    # bytes. https://github.com/aio-libs/aiohttp/blob/master/aiohttp/web_response.py
    _send_headers_immediately = False  # send headers with the first event, in one packet
    _length_check = False  # this class writes the chunks itself

    def __init__(self, framing: Framing, status: int = 200, *, headers_first: bool = False) -> None:
        super().__init__(status=status)
        self._send_headers_immediately = headers_first
        self._frame = framing.frame
        self._in_chunks = True
        self.size = 0  # bytes written so far; aiohttp's `body_length` is 0 until the end

    async def begin(self, request: web.BaseRequest) -> None:
        self._in_chunks = request.version >= HttpVersion11
        if self._in_chunks:
            self.headers[hdrs.TRANSFER_ENCODING] = "chunked"
        else:
            self.force_close()
        await self.prepare(request)

    def send(self, events: bytes | list[bytes]) -> Coroutine[None, None, None]:
        """Send an event, or several, each in the frame that the route requires."""
        return self.write(self._written(events))

    def end(self, events: bytes | list[bytes] = b"", unframed: bytes = b"") -> Coroutine[None, None, None]:
        """Send the last events, if any, and the end of the response."""
        data = self._written(events)
        if unframed:
            data += self._chunk(unframed)
        return self.write_eof(data + (LAST_CHUNK if self._in_chunks else b""))

    def _written(self, events: bytes | list[bytes]) -> bytes:
        data = b""
        for event in [events] if isinstance(events, bytes) else events:
            framed = self._frame(event)
            if framed:
                data += self._chunk(framed)
        self.size += len(data)
        return data

    def _chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._in_chunks else data

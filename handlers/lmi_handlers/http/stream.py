"""A response sent event by event."""

from collections.abc import Coroutine, Iterable

from aiohttp import HttpVersion11, hdrs, web

LAST_CHUNK = b"0\r\n\r\n"
EVENT_STREAM = "text/event-stream"  # the content type of server-sent events
KEEP_ALIVE = b": keep-alive\n\n"  # a comment of server-sent events, which clients skip


class Stream(web.StreamResponse):
    """A streamed response with one HTTP chunk per event, as clients expect, and one write for events sent together."""

    # aiohttp sets both itself, for complete responses and web sockets, and has no public way. A test holds the bytes.
    # https://github.com/aio-libs/aiohttp/blob/master/aiohttp/web_response.py
    _send_headers_immediately = False  # sent with the first event, in one packet
    _length_check = False  # this class writes the chunks itself

    def __init__(self, status: int = 200, *, headers_first: bool = False) -> None:
        super().__init__(status=status)
        self._send_headers_immediately = headers_first
        self._in_chunks = True
        self.size = 0  # bytes written so far; aiohttp's own `body_length` is 0 until the end

    async def begin(self, request: web.BaseRequest) -> None:
        self._in_chunks = request.version >= HttpVersion11
        if self._in_chunks:
            self.headers[hdrs.TRANSFER_ENCODING] = "chunked"
        else:
            self.force_close()
        await self.prepare(request)

    def send(self, events: Iterable[bytes]) -> Coroutine[None, None, None]:
        return self.write(self._written(events))

    def end(self, events: Iterable[bytes] = ()) -> Coroutine[None, None, None]:
        """Send the last events, if any, and the end of the response."""
        return self.write_eof(self._written(events) + (LAST_CHUNK if self._in_chunks else b""))

    def _written(self, events: Iterable[bytes]) -> bytes:
        if self._in_chunks:
            events = [b"%x\r\n%b\r\n" % (len(event), event) for event in events if event]
        data = b"".join(events)
        self.size += len(data)
        return data

"""Long bodies of answers, sent in pieces."""

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

PIECE = 1 << 18  # bytes; a longer body is written in pieces, between which other tasks run


class BodyInPieces(Payload):
    """A body in memory that is sent without copying, and no faster than its client reads."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._body = body

    @property
    def size(self) -> int:
        return len(self._body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self._body, encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        body = memoryview(self._body)
        for begin in range(0, len(body), PIECE):
            await writer.write(body[begin : begin + PIECE])


def response_body(body: bytes) -> bytes | Payload:
    """Return a body for aiohttp's responses."""
    return body if len(body) <= PIECE else BodyInPieces(body)

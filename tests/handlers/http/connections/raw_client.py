"""A client that writes the bytes of HTTP itself, as slowly or as badly as a test needs."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from tests.conftest import RunningServer

LIMIT = 60  # seconds for what must happen: far more than any deadline in these tests
RECEIVE_BUFFER = 1 << 16


class RawClient(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    @property
    def _transport(self) -> asyncio.Transport:
        assert isinstance(self.writer.transport, asyncio.Transport)
        return self.writer.transport

    async def rest(self, limit: float | None = LIMIT) -> bytes:
        """Return what comes until the server closes the connection, which it must; b"" also where it resets it."""
        async with asyncio.timeout(limit):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def raw_client(server: RunningServer) -> AsyncIterator[RawClient]:
    """Connect to the server, with a buffer for what is received that does not grow."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, (server.server.host, server.server.port))
    reader, writer = await asyncio.open_connection(sock=client)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


def post(
    path: str, body: bytes = b"", headers: str = "", length: int | None = None, version: str = "HTTP/1.1"
) -> bytes:
    """Return the bytes of a POST; `length` announces another one than the body has."""
    size = len(body) if length is None else length
    return f"POST {path} {version}\r\nHost: localhost\r\n{headers}Content-Length: {size}\r\n\r\n".encode() + body

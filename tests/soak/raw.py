"""HTTP by hand, for clients that send half of it, or read it slowly."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SMALL_BUFFER = 4096  # bytes that the kernel takes for a client that does not read

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(address: tuple[str, int], receive_buffer: int = SMALL_BUFFER) -> AsyncIterator[Streams]:
    """Connect, and at the end close: nicely or by a reset, as whoever uses it has left it."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, address)
    reader, writer = await asyncio.open_connection(sock=client, limit=receive_buffer)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def request(path: str, body: bytes, headers: dict[str, str], host: str = "localhost") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def parsed(data: bytes) -> tuple[int, bytes]:
    """Return the status and the body of a whole answer; raise ValueError where it is cut off."""
    head, separator, rest = data.partition(b"\r\n\r\n")
    if not separator:
        raise ValueError(f"no whole head in {data[:200]!r}")
    status = int(head.split(b" ")[1])
    if b"transfer-encoding: chunked" in head.lower():
        return status, _dechunked(rest)
    return status, rest


def _dechunked(data: bytes) -> bytes:
    chunks: list[bytes] = []
    while True:
        size_line, separator, data = data.partition(b"\r\n")
        size = int(size_line, 16) if separator else -1
        if size < 0 or len(data) < size + 2:
            raise ValueError("the answer was cut off between its chunks")
        if size == 0:
            return b"".join(chunks)
        chunks.append(data[:size])
        data = data[size + 2 :]

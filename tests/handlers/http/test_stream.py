"""The bytes of an answer that is sent event by event."""

import asyncio

import pytest
from aiohttp import HttpVersion, HttpVersion10, HttpVersion11
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_writer import StreamWriter
from aiohttp.test_utils import make_mocked_request

from lmi_core.handler import Framing
from lmi_handlers.http.exchange import Stream


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False


async def start_stream(stream: Stream, version: HttpVersion = HttpVersion11) -> Transport:
    loop, transport = asyncio.get_running_loop(), Transport()
    protocol = BaseProtocol(loop)
    protocol.connection_made(transport)
    await stream.begin(make_mocked_request("GET", "/", version=version, writer=StreamWriter(protocol, loop)))
    return transport


async def test_the_headers_go_out_with_the_first_event() -> None:
    stream = Stream(Framing())
    transport = await start_stream(stream)
    assert transport.written == []
    await stream.send([b"one"])
    await stream.send([b"two"])
    first, second = transport.written
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\nTransfer-Encoding: chunked\r\n" in first
    assert first.endswith(b"\r\n\r\n3\r\none\r\n")
    assert second == b"3\r\ntwo\r\n"


async def test_the_headers_can_go_first() -> None:
    transport = await start_stream(Stream(Framing(), 201, headers_first=True))
    [headers] = transport.written
    assert headers.startswith(b"HTTP/1.1 201 Created\r\n")
    assert headers.endswith(b"\r\n\r\n")


async def test_events_that_come_together_are_one_write_and_chunks_of_their_own() -> None:
    stream = Stream(Framing())
    transport = await start_stream(stream)
    await stream.send([b"one"])
    await stream.send([b"two", b"", b"a long event, as it is"])
    await stream.end([b"last"])
    assert transport.written[1:] == [b"3\r\ntwo\r\n16\r\na long event, as it is\r\n", b"4\r\nlast\r\n0\r\n\r\n"]


@pytest.mark.parametrize("events", [[], [b""]])
async def test_an_end_without_events(events: list[bytes]) -> None:
    stream = Stream(Framing())
    transport = await start_stream(stream)
    await stream.send([b"one"])
    await stream.end(events)
    await stream.end()  # once is enough
    assert transport.written[1:] == [b"0\r\n\r\n"]


async def test_a_client_that_knows_no_chunks_reads_to_the_end_of_the_connection() -> None:
    stream = Stream(Framing())
    transport = await start_stream(stream, HttpVersion10)
    await stream.send([b"one", b"two"])
    await stream.end([b"last"])
    first, last = transport.written
    assert first.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"chunked" not in first
    assert first.endswith(b"\r\n\r\nonetwo")
    assert last == b"last"
    assert stream.keep_alive is False

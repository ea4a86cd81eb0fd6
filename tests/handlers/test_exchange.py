import asyncio

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_writer import StreamWriter
from aiohttp.test_utils import make_mocked_request

from lmi_handlers.exchange import Stream


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False


async def test_the_headers_of_a_stream_go_out_with_its_first_event() -> None:
    loop, transport = asyncio.get_running_loop(), Transport()
    protocol = BaseProtocol(loop)
    protocol.connection_made(transport)
    stream = Stream()
    await stream.prepare(make_mocked_request("GET", "/", writer=StreamWriter(protocol, loop)))
    assert transport.written == []
    await stream.write(b"one")
    await stream.write(b"two")
    first, second = transport.written
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\n3\r\none\r\n")
    assert second == b"3\r\ntwo\r\n"

"""Bodies that are asked for, and those that end otherwise than their headers say."""

import pytest
from aiohttp import web_protocol
from aiohttp.http_parser import HttpRequestParserPy

from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.handlers.http.connections.raw_client import raw_client

HEAD = (
    b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n"
    b"Connection: close\r\n\r\n"
)


async def test_a_chunk_without_a_size(serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp's parser in Python tells the reader of the body; the one in C has the client wait for `body_timeout`."""
    monkeypatch.setattr(web_protocol, "HttpRequestParser", HttpRequestParserPy)
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    async with raw_client(server) as client:
        await client.send(HEAD)
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"zz\r\nabc\r\n")
        head, _, answered = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 424 ")
    assert answered == b'{"error":"the body cannot be read: zz","code":424}'


async def test_a_client_that_waits_for_100_continue(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    async with raw_client(server) as client:
        await client.send(HEAD)
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b'10\r\n{"inputs": "hi"}\r\n0\r\n\r\n')
        assert (await client.rest()).startswith(b"HTTP/1.1 200 OK\r\n")

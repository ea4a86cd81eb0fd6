"""A client that ends its side of the connection has left, as with other servers of Python."""

import asyncio

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.http.connections.raw_client import LIMIT, post, raw_client

BODY = b'{"inputs": "hi"}'
STREAM = b'{"inputs": "hi", "stream": true}'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_client_that_leaves(server: RunningServer, body: bytes) -> None:
    script = Script(tokens=["one"], hold=True)
    server.scripted.enqueue(script)
    async with raw_client(server) as client, asyncio.timeout(LIMIT):
        await client.send(post("/invocations", body))
        await script.started.wait()
    async with asyncio.timeout(LIMIT):
        await script.closed.wait()


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_client_that_ends_its_side_while_it_waits(server: RunningServer, body: bytes) -> None:
    script = Script(tokens=["one"], hold=True)
    server.scripted.enqueue(script)
    async with raw_client(server) as client, asyncio.timeout(LIMIT):
        await client.send(post("/invocations", body))
        await script.started.wait()
        client.writer.write_eof()
        await script.closed.wait()
        assert b"generated_text" not in await client.rest()


async def test_a_proxy_that_ends_its_side_when_its_client_leaves(server: RunningServer) -> None:
    """The proxy goes on to read, so that nothing that is sent tells that the client has left."""
    script = Script(tokens=["one"], hold=True)
    server.scripted.enqueue(script)
    async with raw_client(server) as client:
        await client.send(post("/invocations", STREAM))
        await client.reader.readuntil(b"one")
        client.writer.write_eof()
        async with asyncio.timeout(LIMIT):
            await script.closed.wait()
        assert b"HTTP/1.1" not in await client.rest()


@pytest.mark.parametrize("sent", [b"", b"POST /invocations HTTP/1.1\r\nHost:", post("/invocations", BODY, length=99)])
async def test_a_request_that_will_not_be_complete(server: RunningServer, sent: bytes) -> None:
    async with raw_client(server) as client:
        await client.send(sent)
        client.writer.write_eof()
        assert await client.rest() == b""
    assert server.scripted.history == []

"""Clients that end their side of the connection: those that wait for the answer, and those that have left."""

import asyncio

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.http.connections.raw_client import LIMIT, post, raw_client

BODY = b'{"inputs": "hi"}'
STREAM = b'{"inputs": "hi", "stream": true}'
PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_the_answer_comes(server: RunningServer, body: bytes, version: str) -> None:
    async with raw_client(server) as client:
        await client.send(post("/invocations", body, version=version))
        client.writer.write_eof()
        answer = await client.rest()
    assert answer.replace(PROBE, b"").startswith(f"{version} 200 OK\r\n".encode())
    assert b"really" in answer


async def test_two_requests_in_a_row(server: RunningServer) -> None:
    async with raw_client(server) as client:
        await client.send(post("/invocations", BODY) * 2)
        client.writer.write_eof()
        assert (await client.rest()).count(b"HTTP/1.1 200 OK\r\n") == 2


async def test_an_answer_that_takes_its_time(server: RunningServer) -> None:
    """One that waits for it stays; it gets an interim response, which finds those that do not."""
    script = Script(tokens=["late"], hold=True)
    server.scripted.enqueue(script)
    async with raw_client(server) as client:
        await client.send(post("/invocations", BODY, "Connection: close\r\nx-request-id: slow\r\n"))
        client.writer.write_eof()
        assert await client.reader.readexactly(len(PROBE)) == PROBE
        server.model.running.abort("slow")
        assert b'"generated_text":"late' in await client.rest()


@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_a_client_that_has_left_at_once(server: RunningServer, body: bytes) -> None:
    script = Script(hold=True)
    server.scripted.enqueue(script)
    async with raw_client(server) as client:
        await client.send(post("/invocations", body))
    async with asyncio.timeout(LIMIT):
        await script.closed.wait()


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

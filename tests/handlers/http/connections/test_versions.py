"""Versions of HTTP that the server does not speak."""

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.http.connections.raw_client import raw_client


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize("version", ["HTTP/0.9", "HTTP/2.0"])
async def test_other_versions_get_no_body(server: RunningServer, version: str) -> None:
    async with raw_client(server) as client:
        await client.send(f"GET /ping {version}\r\nHost: x\r\n\r\n".encode())
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(f"{version} 505 ".encode())
    assert body == b""


async def test_chunks_in_http_1_0(server: RunningServer) -> None:
    """HTTP/1.0 has no chunks, so that another server may see the end of the body elsewhere (RFC 9112 section 6.1)."""
    body = b'{"inputs": "hi"}'
    head = "POST /invocations HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with raw_client(server) as client:
        await client.send(
            head.encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) + b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        answers = await client.rest()
    assert answers.startswith(b"HTTP/1.0 400 ")
    assert answers.count(b"HTTP/1.") == 2  # the status, and the reason: nothing answers the second request
    assert server.scripted.history == []


async def test_a_request_without_a_version_gets_no_body(server: RunningServer) -> None:
    """This is a request of HTTP/0.9, whose answers are a body and nothing else."""
    async with raw_client(server) as client:
        await client.send(b"GET /ping\r\n\r\n")
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/0.9 505 ")
    assert body == b""

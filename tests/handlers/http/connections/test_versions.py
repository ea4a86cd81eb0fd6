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


async def test_a_request_without_a_version_gets_no_body(server: RunningServer) -> None:
    """This is a request of HTTP/0.9, whose answers are a body and nothing else."""
    async with raw_client(server) as client:
        await client.send(b"GET /ping\r\n\r\n")
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/0.9 505 ")
    assert body == b""

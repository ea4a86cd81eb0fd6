"""Bodies whose rest does not come, and the memory that they take together."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from lmi_handlers.http.connections.limits import ConnectionLimits
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, running_server
from tests.handlers.http.connections.raw_client import LIMIT, post, raw_client

MAX_PENDING = 1_000_000
ANNOUNCED = 2_000_000
PART = b" " * 400_000
SHORT = b'{"inputs": "hi"}'
LONG = b" " * 100_000 + SHORT


@pytest.fixture
async def server(model_dir: ModelDirectory) -> AsyncIterator[RunningServer]:
    limits = ConnectionLimits(max_pending_body_bytes=MAX_PENDING, body_timeout=LIMIT)
    async with running_server(model_dir({"serving.properties": SCRIPTED}), limits=limits) as running:
        yield running


async def test_partial_bodies_are_bounded_together(server: RunningServer) -> None:
    async with AsyncExitStack() as connections:
        clients = [await connections.enter_async_context(raw_client(server)) for _ in range(3)]
        for client in clients:
            await client.send(post("/invocations", PART, length=ANNOUNCED))
        refused = await clients[-1].reader.readuntil(b"\r\n\r\n")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in refused
        assert b"(max_pending_body_bytes)" in await clients[-1].reader.readuntil(b"}")
        assert (await server.post("/invocations", data=SHORT)).status == 200
    long = b" " * (MAX_PENDING - 100) + SHORT
    async with asyncio.timeout(LIMIT):  # their room is free again once the server knows that they have left
        while (await server.post("/invocations", data=long)).status == 503:
            pass
    assert (await server.post("/invocations", data=long)).status == 200


async def test_short_bodies_take_no_room(server: RunningServer) -> None:
    async with AsyncExitStack() as connections:
        for _ in range(40):
            client = await connections.enter_async_context(raw_client(server))
            await client.send(post("/invocations", b" " * 50_000, length=ANNOUNCED))
        assert (await server.post("/invocations", data=LONG)).status == 200

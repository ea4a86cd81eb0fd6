"""Requests whose body does not come, and the places in the model's queue, over real sockets."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from lmi_handlers.testing import RunningServer
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, Serve
from tests.handlers.http.connections.raw_client import LIMIT, RawClient, post, raw_client

PLACES = 24
PROPERTIES = SCRIPTED + f"job_queue_size={PLACES - 20}\noption.max_rolling_batch_size=20\n"  # the engine gets all
MANY = 1040
BODY = b'{"inputs": "hi"}'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES}))


async def connected(stack: AsyncExitStack, server: RunningServer, count: int, sent: bytes) -> list[RawClient]:
    """Return clients that have sent these bytes."""
    clients = [await stack.enter_async_context(raw_client(server)) for _ in range(count)]
    for client in clients:
        await client.send(sent)
    return clients


async def fill(stack: AsyncExitStack, server: RunningServer) -> list[Script]:
    """Take every place of the queue with a request that is held."""
    scripts = [Script(hold=True) for _ in range(PLACES)]
    server.scripted.enqueue(*scripts)
    await connected(stack, server, PLACES, post("/invocations", BODY))
    async with asyncio.timeout(LIMIT):
        for script in scripts:
            await script.started.wait()
    return scripts


@pytest.mark.parametrize("sent", [post("/invocations", length=9), post("/invocations", b'{"inputs"', length=99)])
async def test_bodies_that_do_not_come_hold_no_places(server: RunningServer, sent: bytes) -> None:
    async with AsyncExitStack() as stack:
        await connected(stack, server, MANY, sent)
        for path in ("/invocations", "/generate"):
            assert (await server.post(path, {"inputs": "hi"})).status == 200
        assert (await server.get("/ping")).status == 200
        assert server.dispatcher.in_flight == 0


async def test_a_full_queue_refuses_on_the_headers(server: RunningServer) -> None:
    """The answer comes although the body never does."""
    async with AsyncExitStack() as stack:
        await fill(stack, server)
        (late,) = await connected(stack, server, 1, post("/invocations", length=99))
        async with asyncio.timeout(LIMIT):
            head = await late.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in head


async def test_a_queue_that_fills_while_the_body_comes(server: RunningServer) -> None:
    async with AsyncExitStack() as stack:
        (slow,) = await connected(stack, server, 1, post("/invocations", BODY[:5], length=len(BODY)))
        assert (await server.get("/ping")).status == 200  # the server has read those headers too
        scripts = await fill(stack, server)
        await slow.send(BODY[5:])
        async with asyncio.timeout(LIMIT):
            head = await slow.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in head
        assert len(server.scripted.history) == PLACES
    async with asyncio.timeout(LIMIT):  # the clients that took the places have left
        for script in scripts:
            await script.closed.wait()
    assert (await server.post("/invocations", {"inputs": "hi"})).status == 200

"""The number of connections is bounded, and thousands of them do not disturb others."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack

import aiohttp
import pytest

from lmi_handlers.http.connections.limits import RESERVED_DESCRIPTORS, ConnectionLimits
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, running_server
from tests.handlers.http.connections.raw_client import LIMIT, post, raw_client
from tests.lmi_process import lmi_serve

FEW = 4
MOST = 10_000
OWN = 500  # descriptors of this process beside those of the connections
BODY = b'{"inputs": "hi"}'
PING = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
async def server(model_dir: ModelDirectory) -> AsyncIterator[RunningServer]:
    limits = ConnectionLimits(max_connections=FEW)
    async with running_server(model_dir({"serving.properties": SCRIPTED}), limits=limits) as server:
        yield server


@pytest.fixture
def most() -> Iterator[int]:
    """The number of connections that this process may open, which is allowed all that it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST + OWN
    allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed, soft), hard))
    yield min(MOST, allowed - OWN)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("sent", [b"", b"GET /pi", post("/invocations", length=9)])
async def test_the_one_that_has_waited_longest_makes_room(server: RunningServer, sent: bytes) -> None:
    async with AsyncExitStack() as stack:
        script = Script(tokens=["late"], hold=True)
        server.scripted.enqueue(script)
        busy = await stack.enter_async_context(raw_client(server))
        await busy.send(post("/invocations", BODY, "x-request-id: slow\r\n"))
        async with asyncio.timeout(LIMIT):
            await script.started.wait()
        waiting = [await stack.enter_async_context(raw_client(server)) for _ in range(FEW - 1)]
        for client in waiting:
            await client.send(sent)
        for client in waiting:
            new = await stack.enter_async_context(raw_client(server))
            await new.send(PING)
            assert (await new.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
            assert await client.rest() == b""
        server.model.running.abort("slow")
        assert b'"late"' in await busy.reader.readuntil(b"}")


async def test_a_new_one_is_refused_where_none_waits(server: RunningServer) -> None:
    async with raw_client(server) as ended:  # which makes no room any more
        await ended.send(PING)
        assert (await ended.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
    scripts = [Script(hold=True) for _ in range(FEW)]
    server.scripted.enqueue(*scripts)
    async with AsyncExitStack() as stack:
        for script in scripts:
            client = await stack.enter_async_context(raw_client(server))
            await client.send(post("/invocations", BODY))
            async with asyncio.timeout(LIMIT):
                await script.started.wait()
        late = await stack.enter_async_context(raw_client(server))
        await late.send(PING)
        answer = await late.rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: 1\r\n" in answer
    async with asyncio.timeout(LIMIT):
        for script in scripts:
            await script.closed.wait()
    assert (await server.get("/ping")).status == 200


async def test_descriptors_bound_the_number(most: int) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert ConnectionLimits(max_connections=10).affordable_connections == 10
    assert ConnectionLimits(max_connections=10 * soft).affordable_connections == soft - RESERVED_DESCRIPTORS


def test_listeners_share_one_budget() -> None:
    part, rest = ConnectionLimits(max_connections=101, body_timeout=7).split(4)
    assert (part.affordable_connections, rest.affordable_connections) == (25, 76)
    assert (part.body_timeout, rest.body_timeout) == (7, 7)
    part, rest = ConnectionLimits(max_connections=1).split(4)
    assert (part.affordable_connections, rest.affordable_connections) == (1, 1)


async def test_ten_thousand(most: int, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are answered beside as many silent connections as one host allows, and then those are closed."""
    monkeypatch.setenv("SERVING_HEADER_TIMEOUT", "5")
    async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", 0, forked=False) as process:
        url = await process.ready()
        host, _, port = url.removeprefix("http://").partition(":")
        with ExitStack() as stack:
            silent = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(most)]
            async with aiohttp.ClientSession(url) as client:
                for _ in range(20):
                    async with client.post("/invocations", json={"inputs": "hi"}) as response:
                        assert response.status == 200
            await process.line_with(" connections: no complete headers within header_timeout")
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(LIMIT):
                for each in (silent[0], silent[-1]):
                    each.setblocking(False)
                    assert await loop.sock_recv(each, 1) == b""

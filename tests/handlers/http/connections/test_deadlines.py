"""Connections that are too slow in one of their phases, over real sockets."""

import asyncio
import itertools
import logging
import re
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from lmi_handlers.http.connections.connections import Connection
from lmi_handlers.http.connections.limits import ConnectionLimits
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, LoopClock, ModelDirectory, RunningServer, running_server
from tests.handlers.http.connections.raw_client import RawClient, post, raw_client
from tests.loop_clock import until

SHORT = 20  # seconds of the event loop's clock
NEVER = 1e9
BODY = b'{"inputs": "hi", "parameters": {"max_new_tokens": 2000}}'
STREAM = b'{"inputs": "hi", "stream": true, "parameters": {"max_new_tokens": 2000}}'
HEADERS = ConnectionLimits(header_timeout=SHORT)
BODIES = ConnectionLimits(body_timeout=SHORT, header_timeout=NEVER)
WRITES = ConnectionLimits(write_timeout=SHORT, header_timeout=NEVER)
SLOW = ConnectionLimits(body_timeout=SHORT, header_timeout=NEVER, min_transfer_rate=10)
IDLE = ConnectionLimits(keep_alive_timeout=SHORT)
LONG_WORD = "x" * 40_000  # of which a stream of many fills the buffers of both sides


@pytest.fixture
async def server(
    clock: LoopClock, request: pytest.FixtureRequest, model_dir: ModelDirectory
) -> AsyncIterator[RunningServer]:
    """A server with the limits that the test asks for."""
    async with running_server(model_dir({"serving.properties": SCRIPTED}), limits=request.param) as server:
        yield server


def limited(limits: ConnectionLimits) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server", [limits], indirect=True)


async def rest(clock: LoopClock, client: RawClient, trickling: bytes = b"") -> bytes:
    """Return what comes until the server closes the connection, to which a byte is sent every second, or nothing."""
    reading = asyncio.create_task(client.rest(limit=None))
    data = itertools.cycle(trickling)
    with suppress(ConnectionError):
        while not reading.done():
            await client.send(bytes(itertools.islice(data, 1)))
            await clock.pass_time(1)
    return await reading


@limited(HEADERS)
@pytest.mark.parametrize("sent", [b"", b"POST /invocations HTTP/1.1\r\nHost: x\r\n"])
async def test_silence(clock: LoopClock, server: RunningServer, sent: bytes) -> None:
    async with raw_client(server) as client:
        await client.send(sent)
        assert await rest(clock, client) == b""
        assert (await server.post("/invocations", {"inputs": "hi"})).status == 200


@limited(HEADERS)
async def test_headers_that_trickle(clock: LoopClock, server: RunningServer) -> None:
    async with raw_client(server) as client:
        await client.send(b"POST /invocations HTTP/1.1\r\nHost: x\r\n")
        assert await rest(clock, client, b"x-a: b\r\n") == b""


@limited(HEADERS)
async def test_headers_that_trickle_behind_an_answer(clock: LoopClock, server: RunningServer) -> None:
    async with raw_client(server) as client:
        await client.send(post("/invocations", BODY))
        await client.reader.readuntil(b"}")
        await client.send(b"POST /invo")
        assert await rest(clock, client) == b""


@limited(IDLE)
async def test_an_idle_connection(clock: LoopClock, server: RunningServer) -> None:
    async with raw_client(server) as client:
        for _ in range(2):
            await client.send(post("/invocations", BODY))
            assert (await client.reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 OK\r\n")
        assert await rest(clock, client) == b""


@limited(IDLE)
async def test_a_connection_in_use_is_not_idle(clock: LoopClock, server: RunningServer) -> None:
    """Neither one with request after request, nor one whose answer takes longer than idle ones may stay."""
    script = Script(tokens=["late"], hold=True)
    async with raw_client(server) as client:
        for _ in range(10):
            await client.send(post("/invocations", BODY))
            await client.reader.readuntil(b"}")
            for _ in range(5):
                await clock.pass_time(SHORT / 10)
        server.scripted.enqueue(script)
        await client.send(post("/invocations", BODY, "x-request-id: slow\r\n"))
        await until(script.started.is_set)
        for _ in range(40):
            await clock.pass_time(SHORT / 10)
        server.model.running.abort("slow")
        assert b"HTTP/1.1 200 OK\r\n" in await client.reader.readuntil(b"}")


@limited(BODIES)
@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/invocations", 408, rb'\{"error":"the body arrived too slowly: .*","code":408,.*\}'),
        ("/v1/completions", 408, rb'.*"code":"body_timeout".*'),
        ("/generate", 408, rb'\{"error":"the body arrived too slowly: .*","error_type":"validation"\}'),
        ("/v1/messages", 408, rb'.*"type":"invalid_request_error".*'),
        ("/nowhere", 404, b".*there is no route.*"),
    ],
)
@pytest.mark.parametrize("sent", [b"", b'{"inp'])
async def test_a_body_that_does_not_come(
    clock: LoopClock, server: RunningServer, path: str, status: int, body: bytes, sent: bytes
) -> None:
    await server.post(path, {})  # the dialect is imported, which takes longer than this clock's seconds
    async with raw_client(server) as client:
        await client.send(post(path, sent, length=99))
        head, _, answered = (await rest(clock, client)).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert re.fullmatch(body, answered)
    assert server.scripted.history == []


@limited(BODIES)
async def test_a_body_that_trickles(clock: LoopClock, server: RunningServer) -> None:
    await server.post("/invocations", {})  # imports the dialect, as above
    async with raw_client(server) as client:
        await client.send(post("/invocations", length=5000))
        answer = asyncio.create_task(client.reader.readline())
        while not answer.done():  # one that went on to send might not get it
            await client.send(b" ")
            await clock.pass_time(1)
        assert (await answer).startswith(b"HTTP/1.1 408 ")


@limited(SLOW)
async def test_a_large_body_over_a_slow_link(
    clock: LoopClock, server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes far longer than the timeout is read, as enough of it comes all the time."""
    received, receive = 0, Connection.data_received

    def count(self: Connection, data: bytes) -> None:
        nonlocal received
        received += len(data)
        receive(self, data)

    monkeypatch.setattr(Connection, "data_received", count)
    body = BODY.ljust(20_000)
    async with raw_client(server) as client:
        await client.send(post("/invocations", length=len(body)))
        for end in range(1000, len(body) + 1, 1000):
            await client.send(body[end - 1000 : end])
            await until(lambda end=end: received > end)  # type: ignore[misc]
            for _ in range(4):
                await clock.pass_time(SHORT / 10)
        assert (await client.reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 OK\r\n")


@limited(WRITES)
@pytest.mark.parametrize("body", [BODY, STREAM])
async def test_an_answer_that_is_not_read(
    clock: LoopClock, server: RunningServer, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is closed, the work aborted and the place free, and others do not notice."""
    script = Script(tokens=[LONG_WORD] * 500)
    server.scripted.enqueue(script)
    caplog.set_level(logging.INFO)
    async with raw_client(server) as client:
        client.pause_reading()
        await client.send(post("/invocations", body))
        await until(lambda: server.dispatcher.in_flight == 1)
        while "closed 1 connections: an answer that was read too slowly for write_timeout" not in caplog.text:
            await clock.pass_time(1)
        await until(script.closed.is_set)
        assert server.dispatcher.in_flight == 0
        assert (await server.post("/invocations", {"inputs": "hi"})).status == 200
        client.resume_reading()
        assert not (await client.rest()).endswith(b"0\r\n\r\n")


@limited(WRITES)
async def test_an_answer_that_is_read_slowly(clock: LoopClock, server: RunningServer) -> None:
    """The answer comes to its end, however long that takes, as enough of it is read all the time."""
    server.scripted.enqueue(Script(tokens=[LONG_WORD] * 100))
    async with raw_client(server) as client:
        await client.send(post("/invocations", STREAM))
        read, begun = b"", clock.time()
        while not read.endswith(b"0\r\n\r\n"):
            piece = await client.reader.read(1 << 20)
            assert piece
            read = piece[-5:]
            await clock.pass_time(SHORT / 10)
        assert clock.time() - begun > 2 * SHORT


@limited(BODIES)
async def test_two_body_timeouts(clock: LoopClock, server: RunningServer) -> None:
    """The server goes on to watch others once it has closed some."""
    await server.post("/invocations", {})  # imports the dialect, as above
    for _ in range(2):
        async with raw_client(server) as client:
            await client.send(post("/invocations", length=9))
            assert (await rest(clock, client)).startswith(b"HTTP/1.1 408 ")

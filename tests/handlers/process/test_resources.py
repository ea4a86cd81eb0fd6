"""A server that runs out of descriptors or of disk, and recovers by itself."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import LMI, lmi_serve

LIMIT = 60  # seconds for what must happen
LEFT = 6  # descriptors
CLIENTS = 60
PING = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK"
DROPPED = "lines were dropped"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connection(port: int) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def ping(streams: Streams) -> bytes:
    """Return the answer's first line, b"" where the connection was closed."""
    reader, writer = streams
    try:
        writer.write(PING)
        async with asyncio.timeout(LIMIT):
            first = await reader.readline()
            while first and await reader.readline() != b"\r\n":
                pass
            await reader.read(100)
            return first.strip()
    except ConnectionError:
        return b""


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux changes the limits of another process")
async def test_descriptors_are_used_up(model_dir: ModelDirectory) -> None:
    """Connections without a descriptor are closed, the others are served, and nothing spins or floods the log."""
    async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", 0, forked=False) as server:
        port = int((await server.ready()).rpartition(":")[2])
        process = psutil.Process(server.process.pid)
        highest = max(int(name) for name in os.listdir(f"/proc/{process.pid}/fd"))
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (highest + 1 + LEFT, before[1]))
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connection(port)) for _ in range(CLIENTS)]
            begun = cpu_seconds(process)
            answers = [await ping(client) for client in clients]
            served = [client for client, answer in zip(clients, answers, strict=True) if answer == OK]
            assert 0 < len(served) <= LEFT
            assert set(answers) == {OK, b""}
            await asyncio.sleep(1)  # in which nothing is to be done
            assert cpu_seconds(process) - begun < 0.5
            assert await ping(served[0]) == OK
        async with asyncio.timeout(LIMIT):
            while True:  # until the server has seen that the others are gone
                async with connection(port) as again:
                    if await ping(again) == OK:
                        break
        server.process.terminate()
        assert server.process.stderr is not None
        log = (await server.process.stderr.read()).decode()
        assert await server.process.wait() == 0
        assert log.count("\n") < 10, log


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux changes the limits of another process")
async def test_log_on_a_full_disk(model_dir: ModelDirectory, tmp_path: Path) -> None:
    """Requests go on without their lines, which are counted once there is room."""
    log = tmp_path / "log"
    directory = model_dir({"serving.properties": SCRIPTED})
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(LMI, "serve", directory, "--port", "0", stderr=file)
    try:
        async with asyncio.timeout(LIMIT):
            while "Ready" not in log.read_text():
                await asyncio.sleep(0.1)
        port = int(log.read_text().partition("http://127.0.0.1:")[2].split()[0])
        async with asyncio.timeout(LIMIT):
            while DROPPED not in log.read_text():  # the lines of few requests may be written late, once there is room
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
                full = log.stat().st_size
                assert await statuses(port, 20) == {OK}
                assert log.stat().st_size == full
                resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                assert await statuses(port, 1) == {OK}
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert f"{DROPPED}, because nothing read standard error, or its disk was full" in log.read_text()
    assert "shutting down" in log.read_text()


async def statuses(port: int, requests: int) -> set[bytes]:
    body = b'{"inputs": "hi"}'
    head = f"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    found = set[bytes]()
    for _ in range(requests):
        async with connection(port) as (reader, writer):
            writer.write(head.encode() + body)
            found.add((await reader.read()).partition(b"\r\n")[0])
    return found

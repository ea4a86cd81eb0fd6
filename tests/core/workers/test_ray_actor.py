"""The server's end of the connection to a worker in an actor, without Ray."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
import zmq.asyncio

from lmi_core.logs.logs import LOG_LEVEL_VARIABLE
from lmi_core.workers import ray_actor
from lmi_core.workers.channel import Channel
from lmi_core.workers.ray_actor import THREADS_VARIABLE, Connection, RayWorker, gpus_in_groups, max_node_gpus

HTTP = b"GET /api/healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"  # as long as a greeting of ZeroMQ's


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    context = zmq.asyncio.Context()
    yield Connection(context, "127.0.0.1", asyncio.get_running_loop().create_future())
    context.destroy(linger=0)


async def connect(connection: Connection) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection that is not the worker's."""
    return await asyncio.open_connection("127.0.0.1", int(connection.address.rpartition(":")[2]))


async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes = b"") -> None:
    """Close a connection, and wait until the server has closed it, too."""
    with suppress(OSError):  # it closes a connection without a valid greeting at once
        writer.write(said)
        writer.write_eof()
        await reader.read()
    writer.close()


async def test_only_the_end_of_the_workers_connection_counts(connection: Connection) -> None:
    ended = asyncio.create_task(connection.wait_ended())
    await asyncio.sleep(0)  # it watches
    await leave(*await connect(connection))
    await leave(*await connect(connection), HTTP)
    waits = await connect(connection)
    worker = Channel(connection.address, connection.keys)
    worker.send(b"hello")
    assert await connection.receive() == b"hello"
    await leave(*waits)
    await leave(*await connect(connection))
    await leave(*await connect(connection), HTTP)
    await asyncio.wait((ended,), timeout=0.1)
    assert not ended.done()
    worker.close()
    await ended


@pytest.mark.parametrize(("size", "gpus"), [(1, 9), (2, 8), (3, 6), (8, 0), (0, 0)])
def test_gpus_in_groups_that_nodes_hold(monkeypatch: pytest.MonkeyPatch, size: int, gpus: int) -> None:
    nodes = [{"Alive": alive, "Resources": {"GPU": float(count)}} for alive, count in ((1, 3), (1, 4), (0, 8), (1, 2))]
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: True, nodes=lambda: nodes))
    assert (gpus_in_groups(size), max_node_gpus()) == (gpus, 4)


@pytest.mark.parametrize(("given", "engines", "threads"), [("1", 1, "4"), ("1", 2, "2"), ("1", 16, "1"), ("3", 1, "3")])
def test_an_engine_uses_its_share_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, given: str, engines: int, threads: str
) -> None:
    nodes = [{"NodeID": "other", "Resources": {"CPU": 32.0}}, {"NodeID": "own", "Resources": {"CPU": float(engines)}}]
    context = SimpleNamespace(get_node_id=lambda: "own")
    ray = SimpleNamespace(get_runtime_context=lambda: context, nodes=lambda: nodes)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    monkeypatch.setenv(THREADS_VARIABLE, given)
    monkeypatch.setenv(LOG_LEVEL_VARIABLE, "info")
    monkeypatch.setattr(ray_actor, "configure_logging_of_another_program", lambda _: None)
    RayWorker()
    assert os.environ[THREADS_VARIABLE] == threads

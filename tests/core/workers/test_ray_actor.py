"""The server's end of the connection to a worker in an actor, without Ray."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
import zmq.asyncio

from lmi_core.workers.channel import Channel
from lmi_core.workers.ray_actor import Connection, gpus_in_groups, max_node_gpus

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

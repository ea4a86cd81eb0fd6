"""A worker that several servers on this machine share; the process that starts it, their host, is separate.

Messages between a server and the worker do not pass through the host: the worker has its own address.
"""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from lmi_core.logs.logs import log_environment
from lmi_core.workers.conversation import WorkerDied, WorkerSocket
from lmi_core.workers.messages import STARTED

HOST_VARIABLE = "LMI_WORKER_HOST"  # the host's address, for servers that share workers
NUMBER_VARIABLE = "LMI_WORKER_USER"  # the number of such a server, starting at 0
COUNT_VARIABLE = "LMI_WORKER_USERS"  # their number
HOST_GONE = "the process that runs the engines has ended"


class Want(msgspec.Struct, tag=True):
    """A server's first message to the host: the worker that it wants to use, which is started if necessary."""

    key: str
    target: str
    environment: dict[str, str]
    prepare: str | None = None


class Kill(msgspec.Struct, tag=True):
    """The worker is frozen, and must be killed."""


class Release(msgspec.Struct, tag=True):
    """The server no longer uses the worker; the host closes the connection once the worker, if unused, has ended."""


class Running(msgspec.Struct, tag=True):
    """The worker is running and listening."""

    address: str
    process_id: int


class Died(msgspec.Struct, tag=True):
    """The worker has exited."""

    why: str
    out_of_memory: bool = False

    @property
    def error(self) -> WorkerDied:
        error = WorkerDied(self.why)
        error.out_of_memory = self.out_of_memory
        return error


class Ready(msgspec.Struct, tag=True):
    """The only message of a connection without a worker: a front end is ready."""

    front: int
    port: int
    welcome: list[str]  # lines for the log or the terminal


ToHost = Want | Kill | Release | Ready
FromHost = Running | Died

decode_to_host = msgspec.json.Decoder(ToHost).decode
_from_host: msgspec.json.Decoder[FromHost] = msgspec.json.Decoder(FromHost)


def host_of_this_process() -> Path | None:
    """Return the address of the host whose workers this server shares; None if it has its own workers."""
    address = os.environ.get(HOST_VARIABLE)
    return None if address is None else Path(address)


def number_of_this_process() -> int:
    """Return the number of this server among those that share workers; 0 if it has its own workers."""
    return int(os.environ.get(NUMBER_VARIABLE, "0"))


def number_of_servers() -> int:
    """Return the number of servers that share workers, or divide them; 1 if this one has its own."""
    return int(os.environ.get(COUNT_VARIABLE, "1"))


def write_line(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    """Send a message as a line of JSON."""
    writer.write(msgspec.json.encode(message) + b"\n")


class SharedSocket(WorkerSocket):
    """A server's end of a connection to a worker that it shares."""

    def __init__(self) -> None:
        self._context = zmq.asyncio.Context()
        super().__init__(self._context.socket(zmq.DEALER))
        self._socket.set(zmq.IDENTITY, secrets.token_hex(8).encode())
        self._started = False  # whether the worker's first message has been read

    def receive(self) -> Awaitable[bytes]:
        return super().receive() if self._started else self._receive_started()

    async def _receive_started(self) -> bytes:
        self._started = True
        return STARTED


class SharedWorker(SharedSocket):
    """An endpoint of a worker that the host has started, or starts for the first server that wants it."""

    place = files = None  # None for a worker on this machine

    def __init__(
        self, host: Path, key: str, target: str, environment: Mapping[str, str], prepare: str | None = None
    ) -> None:
        """Servers with the same `key` get the same worker."""
        self._host = host
        self._want = Want(key, target, {**environment, **log_environment()}, prepare)
        super().__init__()
        self._writer: asyncio.StreamWriter | None = None
        self._died: asyncio.Task[Died] | None = None
        self.process_id: int | None = None

    async def start(self) -> None:
        if self._writer is not None:
            return
        try:
            reader, self._writer = await asyncio.open_unix_connection(self._host)
        except OSError:
            raise WorkerDied(HOST_GONE) from None
        write_line(self._writer, self._want)
        answer = await _next(reader)
        if isinstance(answer, Died):
            raise answer.error
        self.process_id = answer.process_id
        self._socket.connect(answer.address)
        self._died = asyncio.create_task(_death(reader))
        self.end_with(self._died, attrgetter("error"))

    def kill(self) -> None:
        if self._writer is not None:
            write_line(self._writer, Kill())

    async def stop(self) -> None:
        if self._writer is not None:
            write_line(self._writer, Release())
            if self._died is not None:
                await asyncio.wait({self._died})
            self._writer.close()
        self._writer = None
        self._socket.close(linger=0)
        self._context.term()


async def _next(reader: asyncio.StreamReader) -> Running | Died:
    """Return the host's next message."""
    with suppress(OSError):
        if line := await reader.readline():
            return _from_host.decode(line)
    return Died(HOST_GONE)


async def _death(reader: asyncio.StreamReader) -> Died:
    """Return the reason of the worker's death once it has died or become unused."""
    answer = await _next(reader)
    while isinstance(answer, Running):
        answer = await _next(reader)
    return answer

"""A worker that several servers on this machine share; the process that starts it, their host, is separate.

Messages between a server and the worker do not pass through the host: the worker has its own address.
"""

import asyncio
import fcntl
import logging
import os
import secrets
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from operator import attrgetter
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from lmi_core.logs.formats import log_environment
from lmi_core.workers.endpoint import WorkerDied, WorkerSocket
from lmi_core.workers.messages import STARTED

logger = logging.getLogger(__name__)

HOST_VARIABLE = "LMI_WORKER_HOST"  # the host's address, for servers that share workers
NUMBER_VARIABLE = "LMI_WORKER_USER"  # the number of such a server, starting at 0
LOOK_SECONDS = 0.05  # between two looks at what other servers do in the engine
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


def write_line(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    """Send a message as a line of JSON."""
    writer.write(msgspec.json.encode(message) + b"\n")


class SharedWorker(WorkerSocket):
    """An endpoint of a worker that the host has started, or starts for the first server that wants it."""

    place = files = None  # None for a worker on this machine

    def __init__(
        self, host: Path, key: str, target: str, environment: Mapping[str, str], prepare: str | None = None
    ) -> None:
        """Servers with the same `key` get the same worker."""
        self._host = host
        self._want = Want(key, target, {**environment, **log_environment()}, prepare)
        self._context = zmq.asyncio.Context()
        super().__init__(self._context.socket(zmq.DEALER))
        self._socket.set(zmq.IDENTITY, secrets.token_hex(8).encode())
        self._writer: asyncio.StreamWriter | None = None
        self._died: asyncio.Task[Died] | None = None
        self._started = False  # whether the worker's first message has been read
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

    def receive(self) -> Awaitable[bytes]:
        return super().receive() if self._started else self._receive_started()

    async def _receive_started(self) -> bytes:
        self._started = True
        return STARTED

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


class TrialTurn:
    """The agreement of the servers that share a worker: while one of them tries suspects, no other has requests in it.

    Otherwise the suspects would be blamed for what the others' requests do. It is two locks, which the kernel releases
    when a server dies.
    A server that tries suspects holds both exclusively, first the gate, so that no more requests of other servers
    enter.
    Servers with other requests in the worker share the second lock; to enter, they briefly share the gate.
    """

    def __init__(self, path: Path) -> None:
        self._gate = _Lock(path.with_name(f"{path.name}-gate"))
        self._inside = _Lock(path)
        self._is_taken = False

    def enter(self) -> bool:
        """Record that this server has requests in the engine; return False while a server tries suspects."""
        if self._is_taken:
            return False
        try:
            if not self._gate.lock(fcntl.LOCK_SH):
                return False
            try:
                self._inside.lock(fcntl.LOCK_SH)
            finally:
                self._gate.unlock()
        # For example, no descriptors or no locks: finishing requests matters more than blaming the right one
        except OSError as error:
            logger.warning("other front ends cannot see that requests are in the engine: %s", error)
        return True

    def leave(self) -> None:
        """Record that this server has no requests in the engine."""
        self._inside.unlock()

    async def take(self) -> None:
        """Block all servers' requests, and wait until the engine is empty."""
        self._is_taken = True
        try:
            for lock in (self._gate, self._inside):
                while not lock.lock(fcntl.LOCK_EX):
                    await asyncio.sleep(LOOK_SECONDS)
        except BaseException:
            self.give_back(stays=False)
            raise

    def give_back(self, *, stays: bool) -> None:
        """Admit all servers' requests; with `stays`, this server already has some in the engine."""
        self._is_taken = False
        if stays:
            with suppress(OSError):
                self._inside.lock(fcntl.LOCK_SH)
        else:
            self._inside.unlock()
        self._gate.unlock()

    def close(self) -> None:
        """Leave the worker permanently."""
        self._inside.close()
        self._gate.close()


class _Lock:
    """A file that processes lock, opened on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._held = fcntl.LOCK_UN

    def lock(self, how: int) -> bool:
        """Try to lock the file, shared or exclusively, and return whether this succeeded.

        Raise OSError if the file cannot be opened.
        """
        if self._held == how:
            return True
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(self._descriptor, how | fcntl.LOCK_NB)
            self._held = how
            return True
        self._held = fcntl.LOCK_UN  # the kernel releases a lock before it tries to get another
        return False

    def unlock(self) -> None:
        if self._held != fcntl.LOCK_UN:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self._held = fcntl.LOCK_UN

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._held = -1, fcntl.LOCK_UN


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

"""The endpoint of a worker, on this machine or elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

import zmq
import zmq.asyncio

from lmi_core.errors import ConfigurationError, OutOfMemory


class Place(NamedTuple):
    """A process on another machine."""

    node: str  # its address
    process_id: int


class WorkerDied(Exception):
    """The worker has ended, or is unreachable."""

    def __init__(self, why: str, *, out_of_memory: bool = False) -> None:
        super().__init__(f"{why}, killed as the system does where memory runs out" if out_of_memory else why)
        self.out_of_memory = out_of_memory

    def while_loading(self, what: str) -> ConfigurationError:
        """Return the error for a worker that died while loading its model; its message starts with `what`."""
        if self.out_of_memory:
            return OutOfMemory(f"{what}: {self}")
        return ConfigurationError(f"{what}: {self}; its log above says why")


class Transport(Protocol):
    """The transport of whole messages to a worker and back."""

    def send(self, message: bytes) -> None:
        """Send a message, after the worker has sent one, without waiting: the model's queue bounds those in flight."""

    def receive(self) -> Awaitable[bytes]:
        """Return the next message. Raise WorkerDied when the worker has ended and every message is read."""


class WorkerSocket:
    """The server's end of a connection to a worker, until the worker has ended."""

    def __init__(self, socket: zmq.asyncio.Socket, ended: asyncio.Future[Any], death: Callable[[], WorkerDied]) -> None:
        """`death` returns the reason once `ended` is done."""
        self._socket, self._ended, self._death = socket, ended, death
        self._next: asyncio.Future[bytes] | None = None
        ended.add_done_callback(self._end)

    def send(self, message: bytes) -> None:
        with suppress(zmq.Again):  # the worker has died just now, which `receive` is about to find
            cast("asyncio.Future[object]", self._socket.send(message, zmq.NOBLOCK)).result()

    def receive(self) -> asyncio.Future[bytes]:
        """Return the next message. Raise WorkerDied when the worker has ended and every message is read."""
        self._next = cast("asyncio.Future[bytes]", self._socket.recv())
        if self._ended.done():
            self._end(self._ended)
        return self._next

    def _end(self, ended: asyncio.Future[Any]) -> None:
        if self._next is not None and not self._next.done() and not ended.cancelled():
            self._next.set_exception(self._death())


class Endpoint(Transport, Protocol):
    """One worker, and the messages to it and back."""

    async def start(self) -> None:
        """Start the worker, unless it is running."""

    def kill(self) -> None:
        """Kill the worker, even if it is stopped; `receive` then raises WorkerDied."""

    async def stop(self) -> None:
        """End the worker and free its resources; call it again if it was cancelled."""

    @property
    def place(self) -> Place | None:
        """The worker's process, if it is on another machine."""

    @property
    def files(self) -> Transport | None:
        """A transport of its own for the files that the worker reads, if it is on another machine."""

    @property
    def process_id(self) -> int | None:
        """The worker's process id, for monitoring; None if it has none on this machine."""

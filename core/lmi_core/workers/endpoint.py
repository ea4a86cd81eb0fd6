"""The endpoint of a worker, on this machine or elsewhere."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol, TypeVar, cast

import zmq
import zmq.asyncio

from lmi_core.errors import ConfigurationError, OutOfMemory

T = TypeVar("T")


class Place(NamedTuple):
    """A process on another machine."""

    node: str  # the node's address
    process_id: int


class WorkerDied(Exception):
    """The worker has exited, or is unreachable."""

    def __init__(self, why: str, *, out_of_memory: bool = False) -> None:
        super().__init__(f"{why}, as if killed by the system for lack of memory" if out_of_memory else why)
        self.out_of_memory = out_of_memory

    def while_loading(self, what: str) -> ConfigurationError:
        """Return the error for a worker that died while loading its model; its message starts with `what`."""
        if self.out_of_memory:
            return OutOfMemory(f"{what}: {self}")
        return ConfigurationError(f"{what}: {self}; its log above says why")


class Transport(Protocol):
    """The transport of whole messages to a worker and back."""

    def send(self, message: bytes) -> None:
        """Send a message without waiting, after the worker has sent one: the model's queue limits those in flight."""

    def receive(self) -> Awaitable[bytes]:
        """Return the next message. Raise WorkerDied when the worker has ended and every message is read."""


class WorkerSocket:
    """The server's end of a connection to a worker."""

    def __init__(self, socket: zmq.asyncio.Socket, on_connect: Callable[[], None] | None = None) -> None:
        """`on_connect` is called when the first message arrives."""
        socket.set_hwm(0)
        self._on_connect = on_connect
        self._socket = socket
        self._next: asyncio.Future[bytes] | None = None  # the latest message that was waited for
        self._death: Callable[[], WorkerDied] | None = None  # set once the worker has ended

    def end_with(self, ended: asyncio.Future[T], death: Callable[[T], WorkerDied]) -> None:
        """Once `ended` is done, read only messages that have already arrived; `death` returns the reason."""

        def end(_: object) -> None:
            if not ended.cancelled():
                self._death = partial(death, ended.result())
                self._fail(self._death)

        ended.add_done_callback(end)

    def send(self, message: bytes) -> None:
        with suppress(zmq.Again):  # the worker has died just now, which `receive` is about to find
            cast("asyncio.Future[object]", self._socket.send(message, zmq.NOBLOCK)).result()

    def receive(self) -> Awaitable[bytes]:
        """Return the next message. Raise WorkerDied when the worker has ended and every message is read."""
        received = self._next = cast("asyncio.Future[bytes]", self._socket.recv())
        if self._death is not None:
            self._fail(self._death)
        if self._on_connect is not None:
            if received.done():
                self._connect(received)
            else:
                received.add_done_callback(self._connect)
        return received

    def _connect(self, first: asyncio.Future[bytes]) -> None:
        if self._on_connect is not None and not first.cancelled() and first.exception() is None:
            self._on_connect()
            self._on_connect = None

    def _fail(self, death: Callable[[], WorkerDied]) -> None:
        waiting, self._next = self._next, None  # an error that is kept here would keep this by its traceback
        if waiting is not None and not waiting.done():
            waiting.set_exception(death())


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
        """A separate transport for the files that the worker reads, if it is on another machine."""

    @property
    def process_id(self) -> int | None:
        """The worker's process id, for monitoring; None if it has none on this machine."""

"""One worker, on any machine: its endpoint, and the messages to it and back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec
import zmq
import zmq.asyncio

from lmi_core.errors import ConfigurationError, OutOfMemory
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.workers.heartbeat import Heartbeat
from lmi_core.workers.messages import PING, Alive, LoadFailed, Progress, encode

logger = logging.getLogger(__name__)

M = TypeVar("M")
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


class Conversation(Generic[M]):
    """The messages to and from a worker: loading, work, and signs of life."""

    def __init__(self, endpoint: Endpoint, decode: Callable[[bytes], M], heartbeat_timeout: float = 0) -> None:
        """Kill a worker that is silent for `heartbeat_timeout` seconds despite a ping; 0 means never."""
        self.endpoint = endpoint
        self._decode = decode
        self._heartbeat = Heartbeat(heartbeat_timeout)

    async def load(
        self,
        message: Callable[[], Awaitable[msgspec.Struct]],
        failed: str,
        report: Report = unheard,
        is_late: Callable[[], bool] = lambda: False,
    ) -> M:
        """Start the worker, send it the load message, and return its first answer, after reports of its progress.

        `message` returns the load message once the worker runs; `is_late` returns whether a cancellation is due to the
        loading timeout, in which case the worker is killed, because it may hang.

        Raise ConfigurationError or OutOfMemory, and leave no worker, if loading failed. If the worker died, the message
        starts with `failed`.
        """
        try:
            await self.endpoint.start()
            await self.endpoint.receive()  # Started
            self.send(await message())
            while isinstance(answer := self._decode(await self.endpoint.receive()), Progress):
                report(answer.what, answer.done, answer.total)
            if isinstance(answer, LoadFailed):
                raise answer.error
        except WorkerDied as death:
            await self.stop()
            raise death.while_loading(failed) from None
        except BaseException:
            if is_late():
                self.endpoint.kill()
            await self.stop()
            raise
        return answer

    def send(self, message: msgspec.Struct) -> None:
        self.endpoint.send(encode(message))

    async def follow(self, deliver: Callable[[M], None]) -> str:
        """Deliver the worker's messages until it dies, and return the reason."""
        frozen = asyncio.create_task(self._kill_when_frozen())
        try:
            while True:
                data = await self.endpoint.receive()
                self._heartbeat.heard = True
                message = self._decode(data)
                if not isinstance(message, Alive):
                    deliver(message)
        except WorkerDied as death:
            why = f"the worker {frozen.result()} and was killed" if frozen.done() else str(death)
            logger.error("%s", why)
            return why
        finally:
            frozen.cancel()

    async def stop(self) -> None:
        """End the worker; if cancelled, still wait for it, because nothing else would free its resources."""
        await completed(self.endpoint.stop())

    async def _kill_when_frozen(self) -> str:
        why = await self._heartbeat.wait_frozen(lambda: self.endpoint.send(PING))
        self.endpoint.kill()
        return why


async def completed(ending: Coroutine[Any, Any, None]) -> None:
    """Wait until `ending` is complete, even if this is cancelled meanwhile."""
    task = asyncio.create_task(ending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise

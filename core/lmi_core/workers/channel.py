"""The worker's end of the connection."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Self, TypeVar

import zmq
import zmq.asyncio

from lmi_core.workers.messages import ALIVE, STARTED

M = TypeVar("M")

TRANSPORT = "ipc://"
BEAT_SECONDS = 1.0  # between two signs of life in one long step, at least
# Maximum seconds between two messages of a burst, and from its first to its last, while nothing else waits.
BURST_GAP, MAX_BURST = 0.0003, 0.003


class Keys(NamedTuple):
    """The CURVE keys of one end of a connection between machines."""

    public: bytes
    secret: bytes
    server: bytes = b""  # the worker's public key, if the other end is the worker

    @classmethod
    def new(cls) -> Self:
        return cls(*zmq.curve_keypair())

    def serve(self, socket: zmq.asyncio.Socket) -> None:
        """Let only a worker with this public key connect to the socket."""
        socket.curve_secretkey, socket.curve_publickey, socket.curve_server = self.secret, self.public, True


class Channel:
    """The worker's end of the connection, with keys to another machine."""

    def __init__(self, address: str, keys: Keys | None = None) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        if keys is not None:
            self._socket.curve_publickey, self._socket.curve_secretkey = keys.public, keys.secret
            self._socket.curve_serverkey = keys.server
            # Never reconnect: messages lost with a connection would be missing from answers
            self._socket.reconnect_ivl = -1
        self._socket.connect(address)
        self._beats_at = 0.0  # the next sign of life, by the monotonic clock

    def begin(self, decode: Callable[[bytes], M]) -> M:
        """Report to the server that the worker is ready, and return its first message, which specifies what to load."""
        self.send(STARTED)
        return decode(self.receive())

    def send(self, message: bytes) -> None:
        self._socket.send(message)

    def receive(self) -> bytes:
        """Wait for the next message and return it."""
        return self._socket.recv()

    def pending(self) -> bytes | None:
        """Return the next message if there is one, or None."""
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def burst(self) -> Iterator[bytes]:
        """Yield the next message and those immediately after it, so that requests sent together start together."""
        message: bytes | None = self.receive()
        last_look = time.monotonic() + MAX_BURST
        while message is not None:
            yield message
            message = self.pending()
            if message is None and time.monotonic() < last_look:
                time.sleep(BURST_GAP)
                message = self.pending()

    def beat(self) -> None:
        """Send a sign of life, unless one was sent just now; called after each layer of a step."""
        now = time.monotonic()
        if now >= self._beats_at:
            self._beats_at = now + BEAT_SECONDS
            self.send(ALIVE)

    def asynchronous(self) -> zmq.asyncio.Socket:
        """Return a socket for the running event loop, after which only this socket may be used."""
        return zmq.asyncio.Socket.shadow(self._socket)

    def close(self) -> None:
        self._socket.close(linger=1000)
        self._context.term()


class SharedChannel(Channel):
    """The worker's end of the connections to all servers that share it; its parent is only informed that it runs."""

    def __init__(self, address: str, shared_address: str) -> None:
        super().__init__(address)
        self._parent, self._socket = self._socket, self._context.socket(zmq.ROUTER)
        self._socket.set_hwm(0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)  # makes sending to a server that has disconnected an error
        self._socket.bind(shared_address)
        self.sharers: set[str] = set()  # connected servers that have sent a message
        self.informed: set[str] = set()  # servers that know that the worker is ready
        self.sender = ""  # the sender of the last message
        self.greeting = b""  # for servers that connect after the model was loaded

    def begin(self, decode: Callable[[bytes], M]) -> M:
        self._parent.send(STARTED)
        return decode(self.receive())

    def send(self, message: bytes) -> None:
        """Send a message to every server."""
        for sharer in tuple(self.sharers):
            self.send_to(sharer, message)

    def send_to(self, sharer: str, message: bytes) -> bool:
        """Send a message to one server, and return whether it is still connected."""
        try:
            self._socket.send_multipart((sharer.encode(), message))
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self.sharers.discard(sharer)
            return False
        return True

    def receive(self) -> bytes:
        return self._note_sender(self._socket.recv_multipart())

    def pending(self) -> bytes | None:
        try:
            return self._note_sender(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            return None

    def close(self) -> None:
        self._parent.close(linger=1000)
        super().close()

    def _note_sender(self, frames: list[bytes]) -> bytes:
        sender, message = frames
        self.sender = sender.decode()
        self.sharers.add(self.sender)
        return message

"""The worker's end of the connection."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self, TypeVar

import zmq
import zmq.asyncio

from lmi_core.workers.messages import ALIVE, STARTED
from lmi_core.workers.trial_turn import TurnKeeper

M = TypeVar("M")

TRANSPORT = "ipc://"
BEAT_SECONDS = 1.0  # between two signs of life in one long step, at least
# Maximum seconds between two messages of a burst, and from its first to its last, while nothing else waits.
BURST_GAP, MAX_BURST = 0.0003, 0.003
HEARTBEAT_MILLISECONDS, DEAD_MILLISECONDS = 5_000, 20_000  # between machines


class Keys(NamedTuple):
    """The CURVE keys of one end of a connection between machines."""

    public: bytes
    secret: bytes
    server: bytes = b""  # the public key of the end to which this one connects

    @classmethod
    def new(cls) -> Self:
        return cls(*zmq.curve_keypair())

    def serve(self, socket: "zmq.Socket[Any]") -> None:
        """Let only clients that know this public key connect to the socket."""
        socket.curve_secretkey, socket.curve_publickey, socket.curve_server = self.secret, self.public, True

    def use(self, socket: "zmq.Socket[Any]") -> None:
        """Prepare a socket that connects to the other end."""
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = self.public, self.secret, self.server
        # Never reconnect: messages lost with a connection would be missing from answers
        socket.reconnect_ivl = -1


def notice_lost_machine(socket: "zmq.Socket[Any]") -> None:
    """Let a connection end when the other end's machine can no longer be reached."""
    socket.heartbeat_ivl, socket.heartbeat_timeout = HEARTBEAT_MILLISECONDS, DEAD_MILLISECONDS


class Channel:
    """The worker's end of the connection, with keys to another machine."""

    def __init__(self, address: str, keys: Keys | None = None) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        if keys is not None:
            keys.use(self._socket)
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

    def __init__(self, address: str, parent: str | None = None, keys: Keys | None = None) -> None:
        """Let servers connect to an address, which may lack its port; with `keys`, those that know the public one."""
        self._parent = None if parent is None else Channel(parent)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set_hwm(0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)  # makes sending to a server that has disconnected an error
        if keys is not None:
            keys.serve(self._socket)
            notice_lost_machine(self._socket)
        self._socket.bind(address)
        self.address = self._socket.get_string(zmq.LAST_ENDPOINT)
        self._beats_at = 0.0
        self.sharers: set[str] = set()  # connected servers that have sent a message
        self.turns = TurnKeeper(self.send_to, self.sharers)
        self.informed: set[str] = set()  # servers that know that the worker is ready
        self.sender = ""  # the sender of the last message
        self.greeting = b""  # for servers that connect after the model was loaded

    def begin(self, decode: Callable[[bytes], M]) -> M:
        if self._parent is not None:
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

    def greet(self, sharer: str) -> None:
        """Report to a server that the model is loaded, and who tries suspects."""
        self.send_to(sharer, self.greeting)
        self.turns.greet(sharer)

    def receive(self) -> bytes:
        return self._next()

    def pending(self) -> bytes | None:
        try:
            return self._next(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def close(self) -> None:
        if self._parent is not None:
            self._parent.close()
        super().close()

    def _next(self, flags: int = 0) -> bytes:
        """Return the next message for the engine. Raise zmq.Again if there is none and `flags` forbid waiting."""
        while True:
            sender, message = self._socket.recv_multipart(flags)
            self.sender = sender.decode()
            self.sharers.add(self.sender)
            if not self.turns.receive(self.sender, message):
                return message

"""The worker's own process and its end of the connection; `python -m lmi_core.workers.worker` runs it."""

import contextlib
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import zmq
import zmq.asyncio

from lmi_core.host.processes import descendants, end_session
from lmi_core.logs.level import heed_log_level
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, configure_logging, flush_log
from lmi_core.workers.messages import STARTED

M = TypeVar("M")

TRANSPORT = "ipc://"

LEFT_TO_PARENT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Keys(NamedTuple):
    """The CURVE keys of one end of a connection between machines."""

    public: bytes
    secret: bytes
    server: bytes = b""  # the public key of the other end, where it is the worker's

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
            self._socket.reconnect_ivl = -1  # what was lost with a connection would be missing in answers
        self._socket.connect(address)

    def begin(self, decode: Callable[[bytes], M]) -> M:
        """Report to the server that the worker is ready, and return its first message, which says what to load."""
        self.send(STARTED)
        return decode(self.receive())

    def send(self, message: bytes) -> None:
        self._socket.send(message)

    def receive(self) -> bytes:
        """Wait for the next message and return it."""
        return self._socket.recv()

    def pending(self) -> bytes | None:
        """Return the next message if one is there, or None."""
        try:
            return self._socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def asynchronous(self) -> zmq.asyncio.Socket:
        """Return a socket for the running event loop, after which only that may be used."""
        return zmq.asyncio.Socket.shadow(self._socket)

    def close(self) -> None:
        self._socket.close(linger=1000)
        self._context.term()


def main(target: str, address: str) -> None:
    """Run `target` in the child process until it returns, or its parent is gone or wants it to end."""
    configure_logging(os.environ.get(LOG_LEVEL_VARIABLE, "info"))
    leave_signals_to_parent(partial(_remove, Path(address.removeprefix(TRANSPORT))))
    module, _, name = target.partition(":")
    run: Callable[[Channel], None] = getattr(importlib.import_module(module), name)
    channel = Channel(address)
    try:
        run(channel)
    finally:
        channel.close()


def _remove(socket: Path) -> None:
    """Remove the remains of a killed parent: an unconnected socket and its folder."""
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()


def leave_signals_to_parent(clean_up: Callable[[], None] | None = None) -> None:
    """Ignore signals to the whole process group, as sent by systemd or containers, and end with the parent instead.

    The parent finishes requests first, then it closes this process's standard input, as its own death does too. Then
    `clean_up` is called, and this process and all that it has started end.
    """
    for number in LEFT_TO_PARENT:
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which programs started here would inherit
    threading.Thread(target=_exit_with_parent, args=(clean_up,), daemon=True).start()


def _exit_with_parent(clean_up: Callable[[], None] | None) -> None:
    while message := os.read(0, 1024):  # not sys.stdin: its lock, held here, would abort the interpreter's own exit
        heed_log_level(message)
    try:
        if clean_up is not None:
            clean_up()
        flush_log()
        end_session(os.getpid(), descendants(os.getpid()))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

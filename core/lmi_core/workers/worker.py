"""A child process for an engine, which may crash or block its interpreter without affecting the server.

Parent and child exchange whole messages (bytes) over one ZeroMQ pair. `python -m lmi_core.workers.worker` is the child.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import zmq
import zmq.asyncio

from lmi_core.errors import ConfigurationError, OutOfMemory
from lmi_core.host.out_of_memory import killed_for_memory
from lmi_core.logs.level import LISTENERS
from lmi_core.logs.logs import LOG_LEVEL_VARIABLE, configure_logging
from lmi_core.workers.child_process import ChildProcess, start_process
from lmi_core.workers.messages import LoadFailed, Progress
from lmi_core.workers.process_signals import leave_signals_to_parent

logger = logging.getLogger(__name__)

T = TypeVar("T")

TRANSPORT = "ipc://"
STOP_SECONDS = 1.0  # seconds after which a worker that was asked to end is killed


class WorkerDied(Exception):
    """The child process ended; `exit_code` is negative for a signal, as in `subprocess`."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the worker ended with exit code {exit_code}")
        self.exit_code = exit_code

    def while_loading(self, what: str) -> ConfigurationError:
        """Return the error for a worker that died while it loaded its model; `what` begins its message."""
        if killed_for_memory(self.exit_code):
            return OutOfMemory(f"{what}: {self}, killed by the system, as it does where memory runs out")
        return ConfigurationError(f"{what}: {self}; its log above says why")


class Channel:
    """The child's end of the connection."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._socket.connect(address)

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


class Worker:
    """The parent's end of a child process that runs `target` ("package.module:function")."""

    def __init__(self, target: str, environment: Mapping[str, str] | None = None, python: str | None = None) -> None:
        """Start the child with defaults for its `environment`, and with another `python` interpreter if given."""
        self._target = target
        self._python = python or sys.executable
        self._environment = {**(environment or {}), **os.environ}
        self._folder = tempfile.TemporaryDirectory(prefix="lmi-")
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._connected = False
        self._process: ChildProcess | None = None

    async def start(self) -> None:
        address = f"{TRANSPORT}{Path(self._folder.name) / 'worker'}"
        self._socket.bind(address)
        # The child reads its standard input only to see it end, which it does when this process closes it or is gone.
        # In a session of its own it does not get the terminal's Ctrl-C, so that requests in flight can finish.
        command = (self._python, "-P", "-m", "lmi_core.workers.worker", self._target, address)
        self._process = await start_process(command, self._environment)
        LISTENERS.add(self)

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    async def load(
        self,
        load: bytes,
        decode: Callable[[bytes], T],
        report: Callable[[str, int | None, int | None], None] | None = None,
    ) -> T:
        """Send the child what to load, and return its first answer, after reports of its progress.

        Raise ConfigurationError or OutOfMemory if it could not load that.
        """
        await self.receive()  # Started
        self.send(load)
        while isinstance(answer := decode(await self.receive()), Progress):
            if report is not None:
                report(answer.what, answer.done, answer.total)
        if isinstance(answer, LoadFailed):
            raise answer.error
        return answer

    def send(self, message: bytes) -> None:
        """Send a message, after the child has sent one, without waiting: the model's queue bounds those in flight."""
        cast("asyncio.Future[object]", self._socket.send(message, zmq.NOBLOCK)).result()

    def set_log_level(self, level: str) -> None:
        """Tell the child the level of its log from now on."""
        if self._process is not None:
            self._process.write(f"{level}\n".encode())

    def kill(self) -> None:
        """End the child at once, also one that is stopped; `receive` then raises WorkerDied."""
        if self._process is not None:
            self._process.kill()

    async def receive(self) -> bytes:
        """Return the next message. Raise WorkerDied once the child is gone and every message is read."""
        assert self._process is not None, "start() must be called first"
        exited = self._process.exited
        received: asyncio.Future[bytes] = asyncio.ensure_future(self._socket.recv())
        await asyncio.wait((received, exited), return_when=asyncio.FIRST_COMPLETED)
        if received.done():
            if not self._connected:
                self._connected = True
                self._folder.cleanup()  # nothing is left of it, should both processes be killed
            return received.result()
        received.cancel()
        raise WorkerDied(exited.result())

    async def stop(self) -> None:
        """End the child; call it again if it was cancelled."""
        if self._process is not None:
            self._process.close()
            done, _ = await asyncio.wait({self._process.exited}, timeout=STOP_SECONDS)
            if not done:
                self._process.kill()
                await asyncio.wait({self._process.exited})
        self._process = None
        self._socket.close(linger=0)
        self._context.term()
        self._folder.cleanup()


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
    """Remove what a killed parent leaves behind: a socket that nobody has connected to yet, and its folder."""
    with contextlib.suppress(OSError):
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A child process for an engine, which may crash or block its interpreter without affecting the server.

Parent and child exchange whole messages (bytes) over one ZeroMQ pair. `python -m lmi_core.engines.worker` is the child.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import zmq
import zmq.asyncio

from lmi_core.engines.logs import LOG_LEVEL_VARIABLE, configure_logging

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0  # seconds after which a worker that was asked to stop is killed


class WorkerDied(Exception):
    """The child process ended; `exit_code` is negative for a signal, as in `subprocess`."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"the worker ended with exit code {exit_code}")
        self.exit_code = exit_code


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
        self._process: asyncio.subprocess.Process | None = None
        self._exited: asyncio.Task[int] | None = None

    async def start(self) -> None:
        address = f"ipc://{Path(self._folder.name) / 'worker'}"
        self._socket.bind(address)
        # The child reads its standard input only to see it end, which it does when this process is gone. In a session
        # of its own it does not get the terminal's Ctrl-C, so that requests in flight can finish.
        self._process = await asyncio.create_subprocess_exec(
            *(self._python, "-P", "-m", "lmi_core.engines.worker", self._target, address),
            stdin=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        self._exited = asyncio.create_task(self._process.wait())

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    def send(self, message: bytes) -> None:
        """Send a message, after the child has sent one, without waiting: the model's queue bounds those in flight."""
        cast("asyncio.Future[object]", self._socket.send(message, zmq.NOBLOCK)).result()

    async def receive(self) -> bytes:
        """Return the next message. Raise WorkerDied once the child is gone and every message is read."""
        assert self._exited is not None, "start() must be called first"
        received = asyncio.ensure_future(self._socket.recv())
        await asyncio.wait({received, self._exited}, return_when=asyncio.FIRST_COMPLETED)
        if received.done():
            return received.result()
        received.cancel()
        raise WorkerDied(self._exited.result())

    async def stop(self) -> None:
        """End the child; call it again if it was cancelled."""
        if self._process is not None and self._exited is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            done, _ = await asyncio.wait({self._exited}, timeout=STOP_SECONDS)
            if not done:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await asyncio.wait({self._exited})
        self._process = None
        self._socket.close(linger=0)
        self._context.term()
        self._folder.cleanup()


def main(target: str, address: str) -> None:
    """Run `target` in the child process until it returns, its parent is gone, or a signal ends it."""
    configure_logging(os.environ.get(LOG_LEVEL_VARIABLE, "info"))
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    module, _, name = target.partition(":")
    run: Callable[[Channel], None] = getattr(importlib.import_module(module), name)
    channel = Channel(address)
    try:
        run(channel)
    finally:
        channel.close()


def _exit_with_parent() -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock, held here, would abort the interpreter's own exit
        pass
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A worker in a child process, which may crash or block its interpreter without affecting the server."""

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import cast

import zmq
import zmq.asyncio

from lmi_core.host.out_of_memory import killed_for_memory
from lmi_core.logs.level import LISTENERS
from lmi_core.workers.channel import TRANSPORT
from lmi_core.workers.child_process import ChildProcess, StartedProcess, execute, start_process
from lmi_core.workers.endpoint import WorkerDied
from lmi_core.workers.prepared_workers import PreparedWorker, can_prepare

logger = logging.getLogger(__name__)

STOP_SECONDS = 1.0  # seconds after which a worker that was asked to stop is killed


class LocalProcess:
    """A worker in a child process, which runs `target` ("package.module:function"); connected by a ZeroMQ pair."""

    place = files = None  # None for a worker on this machine

    def __init__(
        self,
        target: str,
        environment: Mapping[str, str] | None = None,
        python: str | None = None,
        prepare: str | None = None,
        shared_address: str | None = None,
    ) -> None:
        """Start the child, with defaults for its `environment`, and with another `python` interpreter if given.

        `prepare` ("package.module:function") imports the target's dependencies, so that the child can be forked from a
        process that has already done so, if that is safe. With a `shared_address`, the child serves all servers that
        connect there.
        """
        self._target = target
        self._shared_address = shared_address
        self._prepare = prepare
        self._python = python or sys.executable
        self._environment = {**(environment or {}), **os.environ}
        self._folder = tempfile.TemporaryDirectory(prefix="lmi-")
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.PAIR)
        self._socket.set_hwm(0)
        self._connected = False
        self._process: ChildProcess | None = None

    async def start(self) -> None:
        if self._process is not None:
            return
        address = f"{TRANSPORT}{Path(self._folder.name) / 'worker'}"
        self._socket.bind(address)
        self._process = await start_process(partial(self._create, address))
        LISTENERS.add(self)

    def _create(self, address: str) -> StartedProcess:
        # The child reads its standard input only to notice that it is closed, when this process closes it or exits. In
        # its own session, the child does not receive the terminal's Ctrl-C, so requests in flight can finish.
        addresses = (address,) if self._shared_address is None else (address, self._shared_address)
        arguments = (self._target, *addresses)
        if self._prepare is not None and can_prepare():
            try:
                return PreparedWorker(self._prepare, arguments, self._environment)
            except OSError as error:
                logger.warning("a worker could not be forked, and is started from scratch: %s", error)
        return execute((self._python, "-P", "-m", "lmi_core.workers.worker", *arguments), self._environment)

    @property
    def process_id(self) -> int | None:
        return self._process.pid if self._process else None

    def send(self, message: bytes) -> None:
        with suppress(zmq.Again):  # it has just died; `receive` will report it
            cast("asyncio.Future[object]", self._socket.send(message, zmq.NOBLOCK)).result()

    def set_log_level(self, level: str) -> None:
        """Send the child its new log level."""
        if self._process is not None:
            self._process.write(f"{level}\n".encode())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def receive(self) -> bytes:
        assert self._process is not None, "start() must be called first"
        exited = self._process.exited
        received: asyncio.Future[bytes] = asyncio.ensure_future(self._socket.recv())
        await asyncio.wait((received, exited), return_when=asyncio.FIRST_COMPLETED)
        if received.done():
            if not self._connected:
                self._connected = True
                self._folder.cleanup()  # remove it even if both processes are killed
            return received.result()
        received.cancel()
        code = exited.result()
        raise WorkerDied(f"the worker ended with exit code {code}", out_of_memory=killed_for_memory(code))

    async def stop(self) -> None:
        if self._process is not None:
            self._process.close()
            done, _ = await asyncio.wait({self._process.exited}, timeout=STOP_SECONDS)
            if not done:
                self._process.kill()
            await asyncio.wait({self._process.ended})
        self._process = None
        self._socket.close(linger=0)
        self._context.term()
        self._folder.cleanup()

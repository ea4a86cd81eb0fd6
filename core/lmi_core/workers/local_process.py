"""A worker in a child process, which may crash or block its interpreter without affecting the server."""

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import zmq
import zmq.asyncio

from lmi_core.host.out_of_memory import killed_for_memory
from lmi_core.logs.level import LISTENERS
from lmi_core.logs.logs import log_environment
from lmi_core.workers.channel import TRANSPORT
from lmi_core.workers.child_process import ChildProcess, StartedProcess, execute, start_process
from lmi_core.workers.conversation import WorkerDied, WorkerSocket
from lmi_core.workers.prepared_workers import PreparedWorker, can_prepare

logger = logging.getLogger(__name__)

STOP_SECONDS = 1.0  # seconds after which a worker that was asked to stop is killed


class LocalProcess(WorkerSocket):
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
        self._environment = {**(environment or {}), **os.environ, **log_environment()}
        self._folder = tempfile.TemporaryDirectory(prefix="lmi-")
        self._context = zmq.asyncio.Context()
        # Nothing is left of the folder once both are connected, should both processes be killed.
        super().__init__(self._context.socket(zmq.PAIR), self._folder.cleanup)
        self._process: ChildProcess | None = None

    async def start(self) -> None:
        if self._process is not None:
            return
        address = f"{TRANSPORT}{Path(self._folder.name) / 'worker'}"
        self._socket.bind(address)
        self._process = await start_process(partial(self._create, address))
        self.end_with(self._process.exited, _death)
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

    def set_log_level(self, level: str) -> None:
        """Send the child its new log level."""
        if self._process is not None:
            self._process.write(f"{level}\n".encode())

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

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


def _death(code: int) -> WorkerDied:
    return WorkerDied(f"the worker ended with exit code {code}", out_of_memory=killed_for_memory(code))

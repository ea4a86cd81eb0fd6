"""The host of workers that several servers share: each starts for the first server that needs it, and ends when the
last one releases it.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from lmi_core.workers.channel import TRANSPORT
from lmi_core.workers.conversation import WorkerDied
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.shared_worker import (
    Died,
    Kill,
    Ready,
    Release,
    Running,
    Want,
    decode_to_host,
    write_line,
)

logger = logging.getLogger(__name__)

# Not enough memory, descriptors, disk space or threads.
UNSTARTED = (OSError, zmq.ZMQError, RuntimeError)
UNUSED_SECONDS = 60.0  # the grace period for a server that replaces a dead one; then a worker without servers is ended


def start_error(error: Exception) -> Died:
    return Died(f"the worker could not be started: {error}")


class HostedWorker:
    """A worker, and the number of servers that use it."""

    def __init__(self, want: Want, address: str) -> None:
        self.users = 0
        self.is_ending = False
        self._address = address
        self._endpoint = LocalProcess(want.target, want.environment, prepare=want.prepare, shared_address=address)
        self.running: asyncio.Future[Running | Died] = asyncio.get_running_loop().create_future()
        self.died = asyncio.create_task(self._run())

    async def _run(self) -> Died:
        """Start the worker, and wait until it has ended."""
        died = Died("the worker was stopped")
        try:
            await self._endpoint.start()
            await self._endpoint.receive()
            process_id = self._endpoint.process_id
            assert process_id is not None
            self.running.set_result(Running(self._address, process_id))
            await self._endpoint.receive()  # raises, because the worker sends its parent nothing else
        except WorkerDied as death:
            died = Died(str(death), death.out_of_memory)
        except UNSTARTED as error:
            died = start_error(error)
        except asyncio.CancelledError:  # by `stop`
            pass
        finally:
            await self._endpoint.stop()
            if not self.running.done():
                self.running.set_result(died)
        return died

    def kill(self) -> None:
        if self.running.done():
            self._endpoint.kill()
        else:  # the process may not exist yet
            self._end()

    async def stop(self) -> None:
        self._end()
        await asyncio.wait({self.died})

    def _end(self) -> None:
        if not self.is_ending:  # a second cancellation would interrupt the release of resources
            self.is_ending = True
            self.died.cancel()


class WorkerHost:
    """The shared workers by key."""

    def __init__(self, folder: Path, on_ready: Callable[[Ready], None] = lambda _: None) -> None:
        """Create the sockets in a folder that only this user can enter; `on_ready` is called for each front end."""
        self.address = folder / "host"
        self._folder = folder
        self._on_ready = on_ready
        self._numbers = itertools.count()
        self._workers: dict[str, HostedWorker] = {}
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.address)

    async def stop(self) -> None:
        """End every worker."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        connections = dict(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(
            *connections, *(writer.wait_closed() for writer in connections.values()), return_exceptions=True
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection: a server's to one worker, or a message."""
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            with suppress(OSError):  # the server has disconnected
                match decode_to_host(await reader.readline()):
                    case Want() as want:
                        await self._lend(want, reader, writer)
                    case Ready() as ready:
                        self._on_ready(ready)
        except asyncio.CancelledError:  # by `stop`; asyncio would log the traceback of a cancelled connection
            pass
        finally:
            writer.close()
            del self._connections[task]

    async def _lend(self, want: Want, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            worker = await self._worker(want)
        except UNSTARTED as error:
            write_line(writer, start_error(error))
            return
        worker.users += 1
        following = asyncio.create_task(self._follow(worker, reader))
        start: tuple[asyncio.Future[Any], ...] = (following, worker.running)
        try:
            await asyncio.wait(start, return_when=asyncio.FIRST_COMPLETED)
            if worker.running.done():
                write_line(writer, worker.running.result())
            await asyncio.wait({following, worker.died}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                write_line(writer, worker.died.result())
            released = await following
        finally:
            following.cancel()
            worker.users -= 1
        if not released:
            await asyncio.sleep(UNUSED_SECONDS)
        if not worker.users:
            await worker.stop()
            if self._workers.get(want.key) is worker:
                del self._workers[want.key]

    async def _worker(self, want: Want) -> HostedWorker:
        """Return the worker with the key, starting it if there is none.

        Raise an error in UNSTARTED if it cannot be started.
        """
        while (worker := self._workers.get(want.key)) is not None and not worker.died.done():
            if not worker.is_ending:
                return worker
            await asyncio.wait({worker.died})  # its memory is needed for the next one
        address = f"{TRANSPORT}{self._folder / f'worker-{next(self._numbers)}'}"
        worker = self._workers[want.key] = HostedWorker(want, address)
        return worker

    async def _follow(self, worker: HostedWorker, reader: asyncio.StreamReader) -> bool:
        """Serve a server until it disconnects, and return whether it has released the worker."""
        with suppress(OSError):
            while line := await reader.readline():
                match decode_to_host(line):
                    case Kill():
                        worker.kill()
                    case Release():
                        return True
        return False

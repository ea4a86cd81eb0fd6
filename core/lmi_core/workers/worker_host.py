"""The host of workers that several servers share: it starts each for the first server that wants it, and ends it when
the last one releases it.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lmi_core.workers.channel import TRANSPORT
from lmi_core.workers.endpoint import WorkerDied
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


class HostedWorker:
    """A worker, and the number of servers that use it."""

    def __init__(self, want: Want, address: str) -> None:
        self.users = 0
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
            await self._endpoint.receive()  # raises, as the worker sends its parent nothing else
        except WorkerDied as death:
            died = Died(str(death), death.out_of_memory)
        except OSError as error:  # no memory for a process, no descriptors, ...
            died = Died(f"the worker could not be started: {error}")
        except asyncio.CancelledError:  # by `stop`
            pass
        finally:
            await self._endpoint.stop()
            if not self.running.done():
                self.running.set_result(died)
        return died

    def kill(self) -> None:
        self._endpoint.kill()

    async def stop(self) -> None:
        self.died.cancel()
        await asyncio.wait({self.died})


class WorkerHost:
    """The shared workers by key."""

    def __init__(self, folder: Path, on_ready: Callable[[Ready], None] = lambda _: None) -> None:
        """Create the sockets in a folder that only this user can enter; `on_ready` hears of each front end."""
        self.address = folder / "host"
        self._folder = folder
        self._on_ready = on_ready
        self._numbers = itertools.count()
        self._workers: dict[str, HostedWorker] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.address)

    async def stop(self) -> None:
        """End every worker."""
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection: a server's to one worker, or a message."""
        with suppress(OSError):  # the server is gone
            match decode_to_host(await reader.readline()):
                case Want() as want:
                    await self._lend(want, reader, writer)
                case Ready() as ready:
                    self._on_ready(ready)
        writer.close()

    async def _lend(self, want: Want, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = self._workers.get(want.key)
        if worker is None or worker.died.done():
            address = f"{TRANSPORT}{self._folder / f'worker-{next(self._numbers)}'}"
            worker = self._workers[want.key] = HostedWorker(want, address)
        worker.users += 1
        following = asyncio.create_task(self._follow(worker, reader))
        try:
            write_line(writer, await worker.running)
            await asyncio.wait({following, worker.died}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                write_line(writer, worker.died.result())
            released = await following
        finally:
            following.cancel()
            worker.users -= 1
        # A server that died is replaced by one that wants the worker, too.
        if released and not worker.users:
            if self._workers.get(want.key) is worker:
                del self._workers[want.key]
            await worker.stop()

    async def _follow(self, worker: HostedWorker, reader: asyncio.StreamReader) -> bool:
        """Obey a server until it is gone, and return whether it has released the worker."""
        while line := await reader.readline():
            match decode_to_host(line):
                case Kill():
                    worker.kill()
                case Release():
                    return True
        return False

"""`lmi serve --servers N`: front ends on one port, and the engines that they share.

This process is their parent: it starts the front ends and the engines, replaces those that die, and does not handle
requests.
"""

import asyncio
import gc
import logging
import os
import sys
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import typer

from lmi_core.errors import BackendGivenUp, ConfigurationError
from lmi_core.logs.level import LISTENERS, change_log_level
from lmi_core.logs.logs import JSON, LOG_FORMAT_VARIABLE, LOG_LEVEL_VARIABLE, terminal_thread
from lmi_core.workers.child_process import ChildProcess, execute, start_process
from lmi_core.workers.heartbeat import Heartbeat
from lmi_core.workers.shared_worker import COUNT_VARIABLE, HOST_VARIABLE, NUMBER_VARIABLE, Ready
from lmi_core.workers.supervisor import Supervisor
from lmi_core.workers.worker_host import WorkerHost
from lmi_handlers.metrics.front_ends import answers
from lmi_handlers.process.front import Front
from lmi_handlers.process.lifetime import END_OF_FRONT, FRONT_VARIABLE, GIVEN_UP, ending_signals
from lmi_handlers.process.signals import INIT, Signals, reap_adopted

logger = logging.getLogger(__name__)

FROZEN_SECONDS = 30.0  # without a response, after which a front end is killed
END_SECONDS = 30.0  # for a front end to exit after its last request; then it is killed
PING_SECONDS = 2.0  # between pings of a front end
RESTARTS = 10  # consecutive failed restarts after which a front end is not started again
ENTRY = "from lmi_handlers.cli.entry import main; main()"
QUIET = "error"  # the log level of further front ends while they start, because they would repeat the first one's lines


class FrontFailed(ConfigurationError):
    """A front end exited before it could serve; it has reported the reason."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the front end ended with exit code {code}")
        self.code = code


class FrontEnd:
    """One front end, which is restarted if it dies."""

    def __init__(self, number: int, parent: "FrontEnds") -> None:
        self._number = number
        self._parent = parent
        self._process: ChildProcess | None = None
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        what = f"front end {number}"
        self.supervisor = Supervisor(self._start, self._watch, self._end, RESTARTS, what=what)
        LISTENERS.add(self)

    def set_log_level(self, level: str) -> None:
        if self._process is not None:
            self._process.write(f"{level}\n".encode())

    def end(self) -> None:
        """Start the graceful shutdown; when called again, the front end ends its requests."""
        if self._process is not None and not self._process.exited.done():
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, END_OF_FRONT)

    async def _start(self) -> ChildProcess:
        front, level = Front(self._number, self._parent.count, self._parent.port), os.environ[LOG_LEVEL_VARIABLE]
        environment = {
            **os.environ,
            HOST_VARIABLE: str(self._parent.host.address),
            NUMBER_VARIABLE: str(self._number),
            COUNT_VARIABLE: str(self._parent.count),
            FRONT_VARIABLE: msgspec.json.encode(front).decode(),
            LOG_LEVEL_VARIABLE: level if front.port is None else QUIET,
        }
        self.ready = asyncio.get_running_loop().create_future()
        command = (sys.executable, "-P", "-c", ENTRY, *sys.argv[1:])
        process = self._process = await start_process(partial(execute, command, environment))
        try:
            await asyncio.wait((self.ready, process.exited), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end(process)
            raise
        if not self.ready.done():
            raise FrontFailed(await process.wait())
        self.set_log_level(os.environ[LOG_LEVEL_VARIABLE])
        self.supervisor.restarts.reset_count()
        return process

    async def _watch(self, process: ChildProcess) -> str:
        watching = asyncio.create_task(self._kill_when_frozen(process))
        try:
            code = await process.wait()
        finally:
            watching.cancel()
        if code == GIVEN_UP and not self._parent.failed.done():
            self._parent.failed.set_result(self._number)
        logger.error("front end %d ended with exit code %d", self._number, code)
        return "the front end ended"

    async def _kill_when_frozen(self, process: ChildProcess) -> None:
        heartbeat = Heartbeat(FROZEN_SECONDS)

        async def ask() -> None:
            while True:
                if await answers(self._parent.host.address.parent, self._number, FROZEN_SECONDS):
                    heartbeat.heard = True
                await asyncio.sleep(PING_SECONDS)

        asking = asyncio.create_task(ask())
        try:
            await heartbeat.wait_frozen(lambda: None)
        finally:
            asking.cancel()
        logger.error("front end %d has not answered for %g seconds and is killed", self._number, FROZEN_SECONDS)
        process.kill()

    async def _end(self, process: ChildProcess) -> None:
        self.end()
        await asyncio.wait({process.exited}, timeout=self._parent.drain_seconds + END_SECONDS)
        if not process.exited.done():
            logger.error("front end %d does not exit and is being killed", self._number)
            process.kill()
            await process.wait()
        process.close()
        await process.ended


class FrontEnds:
    """The front ends of one port, and the host of their engines."""

    def __init__(self, count: int, folder: Path, drain_seconds: float) -> None:
        self.count = count
        self.drain_seconds = drain_seconds
        self.host = WorkerHost(folder, self._note_ready)
        self.port: int | None = None  # set when the first front end listens
        # Set to the number of a front end whose engines are no longer restarted.
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._fronts = [FrontEnd(number, self) for number in range(count)]

    async def start(self) -> list[str]:
        """Start all front ends, and return the lines to print when they are ready. Raise FrontFailed if one cannot be
        started.

        The first one loads the models, and reports any problems with them.
        """
        await self.host.start()
        await self._fronts[0].supervisor.start()
        ready = self._fronts[0].ready.result()
        await asyncio.gather(*(each.supervisor.start() for each in self._fronts[1:]))
        return ready.welcome

    async def wait_failed(self) -> None:
        """Wait until a front end whose engines are not restarted exits, or until the last front end exits. Raise
        BackendGivenUp.
        """
        gone = asyncio.gather(*(each.supervisor.restarts.given_up.wait() for each in self._fronts))
        await asyncio.wait((self.failed, gone), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if self.failed.done():
            raise BackendGivenUp(
                f"the engines of front end {self.failed.result()} are not restarted: see the log above"
            )
        raise BackendGivenUp("all front ends have ended, and are not restarted: see the log above")

    def end(self) -> None:
        for each in self._fronts:
            each.end()

    async def stop(self) -> None:
        """End the front ends once their requests have ended, and then the engines."""
        await asyncio.gather(*(each.supervisor.stop() for each in self._fronts))
        await self.host.stop()

    def _note_ready(self, ready: Ready) -> None:
        self.port = ready.port
        front = self._fronts[ready.front]
        if not front.ready.done():
            front.ready.set_result(ready)


def run_fronts(runner: asyncio.Runner, count: int, level: str, drain_seconds: float) -> None:
    """Serve with front ends until a signal, and log at this level once they serve.

    Raise typer.Exit if they cannot be started, and BackendGivenUp if their engines are given up.
    """
    if sys.platform != "linux":
        raise ConfigurationError("--servers needs Linux, whose kernel spreads connections over the front ends")
    with tempfile.TemporaryDirectory(prefix="lmi-") as folder:
        runner.run(_serve(count, Path(folder), level, drain_seconds))


async def _serve(count: int, folder: Path, level: str, drain_seconds: float) -> None:
    signals = Signals(ending_signals())
    reaping = asyncio.create_task(reap_adopted()) if os.getpid() == INIT else None
    fronts = FrontEnds(count, folder, drain_seconds)
    try:
        if await signals.interrupt(_start(fronts, level)):
            await signals.interrupt(fronts.wait_failed())
    except FrontFailed as failure:
        raise typer.Exit(failure.code if failure.code > 0 else 1) from None
    finally:
        await _stop(fronts, signals)
        if reaping is not None:
            reaping.cancel()


async def _start(fronts: FrontEnds, level: str) -> None:
    ready, *lines = await fronts.start()
    gc.enable()
    if (thread := terminal_thread()) is None or os.environ.get(LOG_FORMAT_VARIABLE) == JSON:
        logger.info("%s", ready)
        return
    thread.show(None)  # the progress of the start
    for line in lines:
        thread.write(line)
    change_log_level(level)


async def _stop(fronts: FrontEnds, signals: Signals) -> None:
    """Stop everything; further signals first end the requests, then this process."""
    stopping = asyncio.create_task(fronts.stop())
    signal = asyncio.create_task(signals.next())
    await asyncio.wait({stopping, signal}, return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        fronts.end()
        signals.end_at_next()
    signal.cancel()
    await stopping

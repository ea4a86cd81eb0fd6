"""Signs of life of vLLM's engine: answers of its core between steps, and CPU time of its workers in a step."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from lmi_core.workers.heartbeat import Heartbeat
from lmi_plugins.vllm_engine.library import AsyncLLM

MIN_SHARE = 0.05  # of a CPU core; idle processes use less


class Pings:
    """Pings to the core, one at a time: each asks whether the core sleeps, and the core's loop answers."""

    def __init__(self, engine: AsyncLLM, heartbeat: Heartbeat) -> None:
        self._engine = engine
        self._heartbeat = heartbeat
        self._asking: asyncio.Task[None] | None = None

    def send(self) -> None:
        """Send a ping, unless the last one is unanswered."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ping())

    def cancel(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ping(self) -> None:
        with suppress(Exception):  # the core has died, which is handled elsewhere
            await self._engine.is_sleeping()
            self._heartbeat.heard = True


class WorkersTime:
    """The CPU time of an engine's workers, without its core: scheduling should not take long."""

    def __init__(self, core_process_ids: Callable[[], list[int]]) -> None:
        self._core_process_ids = core_process_ids
        self._looked = time.monotonic()
        self._used: dict[int, float] = {}  # CPU seconds by process

    async def grows(self) -> bool:
        """Return whether a worker has computed since the last call, or is ready to."""
        return await asyncio.to_thread(self._grows)

    def _grows(self) -> bool:
        elapsed, self._looked = time.monotonic() - self._looked, time.monotonic()
        before, self._used, runnable = self._used, {}, False
        found: list[psutil.Process] = []
        for process_id in self._core_process_ids():
            with suppress(psutil.Error):
                found += psutil.Process(process_id).children(recursive=True)
        for process in found:
            with suppress(psutil.Error):  # it has just exited
                times = process.cpu_times()
                self._used[process.pid] = times.user + times.system
                runnable = runnable or process.status() == psutil.STATUS_RUNNING
        grown = sum(used - before.get(process_id, used) for process_id, used in self._used.items())
        return runnable or grown > MIN_SHARE * elapsed

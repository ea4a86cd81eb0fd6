"""Faults of the engine: its process is killed, or stopped so that it does nothing."""

import asyncio
import os
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from tests.command_lines import command_line, workers_of
from tests.soak.target import Target

VLLM = "VLLM::EngineCore"  # in the command line of an engine's process
MIN_COMPANY = 6  # requests that must be in progress, as one that is alone twice counts as the cause
REPLACED_SECONDS = 240.0


def workers(server: int) -> list[psutil.Process]:
    """Return the processes of the engine."""
    process = psutil.Process(server)
    cores = [each for each in process.children(recursive=True) if VLLM in " ".join(command_line(each))]
    return cores + workers_of(process)


@dataclass
class Faults:
    """The faults that were injected, and how long the server was without an engine after each."""

    server: int  # its process id
    target: Target
    kinds: Sequence[signal.Signals] = (signal.SIGKILL, signal.SIGSTOP)
    killed: list[float] = field(default_factory=list)  # seconds
    stopped: list[float] = field(default_factory=list)

    async def run(self, over: asyncio.Event, numbers: random.Random, pause: float, most: int | None) -> None:
        """Inject faults until it is over, or as many as there are to be at most, now and then two in a row."""
        while not over.is_set() and self.count != most:
            await asyncio.sleep(numbers.uniform(0.3, 1.7) * pause)
            begun: set[object] = set()
            for _ in range(numbers.choice([1, 1, 2])):
                begun = self.target.asking
                if not over.is_set() and len(begun) >= MIN_COMPANY and self.count != most:
                    await self.inject(numbers.choice(self.kinds))
            while self.target.asking & begun and not over.is_set():  # none of them sees a third one
                await asyncio.sleep(0.05)

    @property
    def count(self) -> int:
        return len(self.killed) + len(self.stopped)

    async def inject(self, number: signal.Signals) -> None:
        """Kill or stop the engine's process, and wait for the next one."""
        (worker,) = workers(self.server)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        os.kill(worker.pid, number)
        async with asyncio.timeout(REPLACED_SECONDS):
            while not {each.pid for each in workers(self.server)} - {worker.pid}:
                await asyncio.sleep(0.02)
            while await self._status() != 200:
                await asyncio.sleep(0.02)
        (self.killed if number == signal.SIGKILL else self.stopped).append(loop.time() - begun)

    async def _status(self) -> int:
        async with self.target.session.get("/ping") as response:
            return response.status

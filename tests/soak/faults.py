"""Faults of the engine: its process is killed, or stopped so that it does nothing."""

import asyncio
import os
import random
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from tests.command_lines import command_line, workers_of
from tests.soak.questions import MODEL
from tests.soak.target import Target

VLLM = "VLLM::EngineCore"  # in the command line of an engine's process
MIN_COMPANY = 6  # requests that must be in progress, as one that is alone twice counts as the cause
REPLACED_SECONDS = 240.0
RUNNING = rf'^lmi_requests_running{{model="{MODEL}".*}} ([0-9.]+)$'


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
        """Inject faults until it is over, or as many as there are to be at most, always two in a row."""
        while not over.is_set() and self.count != most:
            await asyncio.sleep(numbers.uniform(0.3, 1.7) * pause)
            begun: set[object] = set()
            for _ in range(2):
                if not over.is_set() and len(self.target.asking) >= MIN_COMPANY and self.count != most:
                    begun |= await self.inject(numbers.choice(self.kinds))
            while self.target.asking & begun and not over.is_set():  # none of them sees a third one
                await asyncio.sleep(0.05)

    @property
    def count(self) -> int:
        return len(self.killed) + len(self.stopped)

    async def inject(self, number: signal.Signals) -> set[object]:
        """Kill or stop the engine's process, and wait until the next one has requests; return those that were asked."""
        (worker,) = await self._engines()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        os.kill(worker, number)
        asking = self.target.asking
        async with asyncio.timeout(REPLACED_SECONDS):
            while worker in (engines := await self._engines()) or not engines:
                await asyncio.sleep(0.02)
            (self.killed if number == signal.SIGKILL else self.stopped).append(loop.time() - begun)
            while self.target.asking & asking and not await self._running():
                await asyncio.sleep(0.02)
        return asking

    async def _engines(self) -> set[int]:
        """Return the ids of the processes of the model's engine, which are none while it is restarted."""
        ((served,),) = [each["models"] for each in await self.target.get(f"/models/{MODEL}")]
        listed = {worker["processId"] for group in served["workerGroups"] for worker in group["workers"]}
        return listed & {each.pid for each in workers(self.server)}

    async def _running(self) -> int:
        """Return how many sequences the engine generates."""
        async with self.target.session.get("/metrics") as response:
            found = re.search(RUNNING, await response.text(), re.MULTILINE)
        return int(float(found[1])) if found else 0

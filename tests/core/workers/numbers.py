"""Replicas whose engines are tasks: they give each request the numbers from 0 on, one each second.

The first one takes as many seconds as the prompt has tokens.
"""

import asyncio
from collections.abc import AsyncGenerator

from lmi_core.errors import BackendUnhealthy, ConfigurationError
from lmi_core.logs.logs import log_model
from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.replica import Replica
from lmi_core.workers.replicas import ONE, ReplicaCount, Replicas
from lmi_core.workers.resumption import EngineLost, Resumption
from lmi_core.workers.supervisor import Restarts

LENGTH = 60  # tokens of each answer
RESTART_SECONDS = 10
ONE_TOKEN = Work(rest=1)


class Numbers(Replica):
    """An engine that can be killed, after which the next one takes its time."""

    process_ids = ()

    def __init__(self, number: int, faulty: set[int]) -> None:
        super().__init__()
        self.number = number
        self.log_model: str | None = None  # whose model the lines of its start name
        self.given: list[int] = []  # the first numbers that were asked for
        self.stopped = False
        self._faulty = faulty
        self._restarts = Restarts(0, f"engine {number}")
        self._available = asyncio.Event()
        self._death = asyncio.get_running_loop().create_future()

    @property
    def restarts(self) -> Restarts:
        return self._restarts

    @property
    def is_available(self) -> bool:
        return self._available.is_set() and not self._restarts.given_up.is_set()

    async def available(self) -> None:
        await self._available.wait()
        if self._restarts.given_up.is_set():
            raise BackendUnhealthy(f"engine {self.number} is not restarted again")

    def check_health(self) -> None:
        if not self.is_available:
            raise BackendUnhealthy(f"engine {self.number} is being restarted")

    async def start(self) -> None:
        self.log_model = log_model.get()
        await asyncio.sleep(5)
        if self.number in self._faulty:
            raise ConfigurationError(f"engine {self.number} has no memory")
        self._available.set()

    async def stop(self) -> None:
        self.stopped = True
        if self.is_available:
            self.kill(for_good=True)

    def kill(self, *, for_good: bool = False) -> None:
        """Let the engine die; the next one is there after some seconds, or never."""
        self._available.clear()
        self._death.set_result(self.isolation.inside)
        self.record_death()
        self._death = asyncio.get_running_loop().create_future()
        if for_good:
            self._restarts.given_up.set()
            self._available.set()
        else:
            asyncio.get_running_loop().call_later(RESTART_SECONDS, self._available.set)

    async def run(self, start: int, presence: Presence) -> AsyncGenerator[int, None]:
        self.check_health()
        self.given.append(start)
        death, seconds = self._death, presence.prefill or 1
        for number in range(start, LENGTH):
            await asyncio.wait({death}, timeout=seconds)
            seconds = 1
            if death.done():
                raise EngineLost(f"engine {self.number} died", death.result())
            if number == LENGTH - 1:
                presence.leave()
            yield number


class Engines:
    """Several such engines, and requests to them."""

    def __init__(
        self, count: ReplicaCount = ONE, max_sequences: int = 0, faulty: set[int] | None = None, groups: int = 1
    ) -> None:
        self.faulty = faulty or set()
        self.replicas = Replicas(lambda number: Numbers(number, self.faulty), count, max_sequences, groups=groups)
        self._resumption = Resumption(self.replicas)

    async def ask(self, work: Work = ONE_TOKEN) -> list[int]:
        given: list[int] = []

        def note(number: int) -> int:
            given.append(number)
            return len(given)

        stream = self._resumption.stream(lambda engine, presence: engine.run(len(given), presence), note, work)
        return [number async for number in stream]

    def asking(self, count: int, work: Work = ONE_TOKEN) -> "list[asyncio.Task[list[int]]]":
        return [asyncio.create_task(self.ask(work)) for _ in range(count)]

    @property
    def inside(self) -> list[int]:
        """The number of requests in each engine."""
        return [each.isolation.inside for each in self.replicas.members]

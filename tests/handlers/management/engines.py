"""A backend that has engines with devices of their own, and answers with scripts."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, ClassVar

from lmi_core.backend import BackendSetup
from lmi_core.errors import ConfigurationError, OutOfMemory
from lmi_core.generation.output import GenerationStep, PartialOutput
from lmi_core.generation.request import ValidRequest
from lmi_core.workers.isolation import Work
from lmi_core.workers.replicas import Replicas
from lmi_core.workers.resumption import Resumption
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.core.workers.numbers import Numbers


class Engine(Numbers):
    """An engine that needs the device of its number for itself."""

    owners: ClassVar[dict[int, str]] = {}  # of devices
    faulty: ClassVar[dict[str, int]] = {}  # the device on which an owner's engine does not start
    gates: ClassVar[dict[str, asyncio.Event]] = {}  # which an owner's engines wait for before they start

    def __init__(self, number: int, owner: str) -> None:
        super().__init__(number, set())
        self._owner = owner

    async def start(self) -> None:
        await asyncio.sleep(0.005)
        if (gate := self.gates.get(self._owner)) is not None:
            await gate.wait()
        if self.number in self.owners:
            raise OutOfMemory(f"device {self.number} is taken")
        if self.faulty.get(self._owner) == self.number:
            raise ConfigurationError(f"device {self.number} is faulty")
        self.owners[self.number] = self._owner
        self._available.set()

    async def stop(self) -> None:
        if self.is_available:
            del self.owners[self.number]
        await super().stop()


class EnginesBackend(ScriptedBackend):
    """A backend whose scripts run in such engines."""

    name = "engines"
    replicates = True

    def __init__(self, setup: BackendSetup[Any]) -> None:
        super().__init__(setup)
        owner = setup.properties.scripted_text
        count, most = self.placement(setup.replicas).replicas, setup.properties.max_rolling_batch_size
        self.engines = self.replicas = Replicas(lambda number: Engine(number, owner), count, most, setup.max_idle_time)
        self._resumption = Resumption(self.engines)

    async def start(self) -> None:
        await self.engines.start(self.former)

    async def stop(self) -> None:
        await self.engines.stop()

    def generate(self, request: ValidRequest) -> AsyncGenerator[GenerationStep, None]:
        steps, partial = super().generate(request), PartialOutput(request.parameters.num_sequences)
        return self._resumption.stream(lambda *_: steps, partial.add, Work(rest=1))

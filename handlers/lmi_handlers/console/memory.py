"""The memory of a server and its host, read from time to time rather than for each client."""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from lmi_core.host.devices import visible_gpus
from lmi_core.host.memory import DeviceMemory, free_main_memory, gpu_memory, total_main_memory
from lmi_core.host.processes import memory_of
from lmi_handlers.console.answers import Gpu, MainMemory, ShownMemory

SECONDS = 2.0  # for which a measurement is reused
SECONDS_OF_GPUS = 5.0  # longer, because the driver's program takes a moment
SERVER = ""  # stands for the server among the names of models


@dataclass(frozen=True, slots=True)
class MemoryRead:
    """One reading of the memory; `by_model` contains the bytes of each model's own processes."""

    main: MainMemory = field(default_factory=lambda: MainMemory(total=None, free=None))
    gpus: tuple[DeviceMemory, ...] = ()
    server: int | None = None
    by_model: Mapping[str, int] = field(default_factory=dict)

    @property
    def shown(self) -> ShownMemory:
        gpus = [Gpu(number=each.number, name=each.name, used=each.used, total=each.total) for each in self.gpus]
        return ShownMemory(main=self.main, gpus=gpus, server=self.server)


class MemoryReader:
    """A reader in another thread, shared by concurrent requests."""

    def __init__(self) -> None:
        self._read = MemoryRead()
        self._at = self._gpus_at = -float("inf")
        self._reading = asyncio.Lock()

    async def read(self, process_ids: Mapping[str, list[int]]) -> MemoryRead:
        """Return the memory, including that of each model's processes; a recent reading is reused."""
        async with self._reading:
            now = time.monotonic()
            if now - self._at >= SECONDS:
                self._read = await asyncio.to_thread(self._look, process_ids, now)
                self._at = now
        return self._read

    def _look(self, process_ids: Mapping[str, list[int]], now: float) -> MemoryRead:
        gpus = self._read.gpus
        if now - self._gpus_at >= SECONDS_OF_GPUS:
            gpus, self._gpus_at = tuple(gpu_memory()) if visible_gpus() else (), now
        by_model = memory_of({**process_ids, SERVER: [os.getpid()]})
        main = MainMemory(total=total_main_memory(), free=free_main_memory())
        return MemoryRead(main, gpus, by_model.pop(SERVER, None), by_model)

"""Room for models: memory is planned before one is loaded, and the least recently used ones may make it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

from lmi_core.errors import OutOfMemory
from lmi_core.registry.memory import FreeMemory, Need, free_memory, lacking, memory_need
from lmi_core.registry.registered_model import ModelState, RegisteredModel
from lmi_core.serving.model import Model


class Room:
    """The memory of this host's devices, of which models that load have their part planned."""

    def __init__(self) -> None:
        self.evicts = False  # whether models that nobody uses now are unloaded for others
        self.free: FreeMemory = free_memory
        self._planned: dict[Model, Need] = {}
        self._loaded = asyncio.Event()  # replaced when it is set, as a model is loaded or has failed

    @asynccontextmanager
    async def planned(
        self,
        model: Model,
        others: Callable[[], Iterable[RegisteredModel]],
        unload: Callable[[RegisteredModel], Awaitable[bool]],
    ) -> AsyncIterator[None]:
        """Plan the memory of a model that is loaded in the body. Raise OutOfMemory where it does not fit.

        Models that load at the same time are waited for, before it is known whether this one fits beside them.
        """
        need = await asyncio.to_thread(memory_need, model.plan)
        while (why := await self._lacking(model, need)) is not None:
            if self._planned_on(need):
                await self._loaded.wait()
            elif not (self.evicts and await _unload_one(others(), unload)):
                raise OutOfMemory(why)
        self._planned[model] = need
        try:
            yield
        finally:
            del self._planned[model]
            self._loaded.set()
            self._loaded = asyncio.Event()

    async def _lacking(self, model: Model, need: Need) -> str | None:
        """Return in words why a model does not fit, measured while no other one has ended its loading."""
        while True:
            loaded = self._loaded
            free = await asyncio.to_thread(self.free, need) if need.size else None
            if loaded is self._loaded:  # otherwise it is unknown whether what was loaded is in the measure
                return lacking(model.name, need, free, self._planned_on(need))

    def _planned_on(self, need: Need) -> int:
        return sum(each.size for each in self._planned.values() if each.device is need.device)


async def _unload_one(models: Iterable[RegisteredModel], unload: Callable[[RegisteredModel], Awaitable[bool]]) -> bool:
    """Unload the least recently used of the models that nobody uses, and return whether there is one."""
    ready = [(each.model.usage.last, each) for each in models if each.model and each.state is ModelState.READY]
    for _, registered in sorted(ready, key=lambda pair: pair[0]):
        if await unload(registered):
            return True
    return False

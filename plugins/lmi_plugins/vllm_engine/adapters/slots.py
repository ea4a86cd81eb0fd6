"""The adapter slots of a vLLM engine, some of which are pinned.

vLLM can pin an adapter (`pin_lora`), but its scheduler does not count it: a step with `max_loras` others, for which
there are not enough slots then, ends the engine. So while adapters are pinned, requests wait here for a slot.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from lmi_core.errors import BackendUnhealthy, InvalidAdapter
from lmi_plugins.vllm_engine.adapters.adapter import Adapter
from lmi_plugins.vllm_engine.library import AsyncLLM, EngineDeadError

logger = logging.getLogger(__name__)


class AdapterSlots:
    """The adapters of requests in the engine, and the pinned ones, by vLLM's number."""

    def __init__(self) -> None:
        self.number = 0  # the engine's `max_loras`
        self._engine: AsyncLLM | None = None
        self._running: Counter[int] = Counter()  # running requests
        self._pinned: dict[int, Adapter] = {}
        self._unpinned: set[int] = set()  # pinned in vLLM until no request uses them
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # in order of arrival
        self._changed = asyncio.Event()
        self._releases: set[asyncio.Task[None]] = set()

    async def begin(self, engine: AsyncLLM) -> None:
        """Attach a new engine, which accepts no requests yet, and pin the same adapters as in the previous one."""
        lora = engine.vllm_config.lora_config
        self._engine, self.number = engine, 0 if lora is None else lora.max_loras
        self._unpinned.clear()
        for number, adapter in list(self._pinned.items()):
            try:
                await _pin(engine, adapter)
            except EngineDeadError:  # the supervisor notices it too
                return
            except Exception as error:  # the engine's process may raise anything
                logger.error("adapter %s is no longer pinned: %s", adapter.name, error)
                self._pinned.pop(number, None)

    @asynccontextmanager
    async def one(self, adapter: Adapter | None) -> AsyncIterator[None]:
        """Hold a slot for a request; without a free slot, requests wait in order of arrival."""
        if adapter is None:
            yield
            return
        await self._enter(adapter.number)
        try:
            yield
        finally:
            self._leave(adapter.number)

    def is_pinned(self, adapter: Adapter) -> bool:
        return adapter.number in self._pinned

    async def pin(self, adapter: Adapter, in_place_of: Adapter | None = None) -> None:
        """Pin an adapter to a slot, waiting for one.

        Raise InvalidAdapter if no slot would be left for others, or BackendUnhealthy if the engine dies.
        """
        number, engine = adapter.number, self._engine
        assert engine is not None, "started before"
        others = self._pinned.keys() - ({number} if in_place_of is None else {number, in_place_of.number})
        if len(others) + 1 >= self.number:
            names = ", ".join(sorted(self._pinned[each].name for each in others)) or "none"
            raise InvalidAdapter(
                f"adapter {adapter.name} cannot be pinned: at most {max(self.number - 1, 0)} can, so that the "
                f"others can be used beside them (option.max_loras={self.number}). Pinned: {names}"
            )
        self._pinned[number] = adapter
        self._unpinned.discard(number)
        try:
            while len(self._in_slots | self._running.keys()) > self.number:
                self._changed.clear()
                await self._changed.wait()
            await _pin(engine, adapter)
        except BaseException as error:
            self._pinned.pop(number, None)
            self._release(number)
            if isinstance(error, EngineDeadError):
                raise BackendUnhealthy("the adapter was not pinned: vLLM's engine died") from None
            raise

    def unpin(self, adapter: Adapter) -> None:
        """Unpin an adapter, which leaves its slot after its last request."""
        if self._pinned.pop(adapter.number, None) is not None:
            self._release(adapter.number)

    @property
    def _in_slots(self) -> set[int]:
        return self._pinned.keys() | self._unpinned

    def _fits(self, number: int) -> bool:
        return not self._in_slots or len(self._in_slots | self._running.keys() | {number}) <= self.number

    async def _enter(self, number: int) -> None:
        if number in self._in_slots or (not self._waiting and self._fits(number)):
            self._running[number] += 1
            return
        place = (number, asyncio.get_running_loop().create_future())
        self._waiting.append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if not place[1].cancelled():  # it already had its slot
                self._leave(number)
            elif place in self._waiting:
                self._waiting.remove(place)
                self._wake()
            raise

    def _leave(self, number: int) -> None:
        self._running[number] -= 1
        if not self._running[number]:
            del self._running[number]
            if number in self._unpinned:
                self._release(number)
        self._wake()

    def _release(self, number: int) -> None:
        """Remove an unpinned adapter from vLLM after its last request; vLLM has no other way to unpin."""
        self._unpinned.add(number)
        if number not in self._running:
            task = asyncio.create_task(self._remove(number))
            self._releases.add(task)
            task.add_done_callback(self._releases.discard)

    async def _remove(self, number: int) -> None:
        engine = self._engine
        assert engine is not None, "started before"
        if number in self._pinned:  # pinned again in the meantime
            return
        with suppress(Exception):  # it disappeared with its engine, or was never there
            await engine.remove_lora(number)
        if number not in self._pinned:
            self._unpinned.discard(number)
            self._wake()

    def _wake(self) -> None:
        """Give free slots to waiting requests."""
        while self._waiting and self._fits(self._waiting[0][0]):
            number, place = self._waiting.popleft()
            if not place.done():
                self._running[number] += 1
                place.set_result(None)
        self._changed.set()


async def _pin(engine: AsyncLLM, adapter: Adapter) -> None:
    await engine.add_lora(await adapter.checked(engine))  # vLLM may have evicted it
    await engine.pin_lora(adapter.number)

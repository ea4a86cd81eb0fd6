"""The torch engine's client, for requests with drafts and with adapters of their own."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cached_property
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from lmi_core.errors import AdapterNotFound
from lmi_core.generation.output import GenerationStep
from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.resumption import PartialOutput
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.client.engine_worker import EngineWorker
from lmi_plugins.torch_engine.client.step_queue import StepQueue
from lmi_plugins.torch_engine.messages.requests import EngineRequest
from lmi_plugins.trtllm.requests.adapters import CachedAdapters, RequestAdapter, adapter_errors

MAX_LOADS = 3  # of an adapter that others displace before its request has begun


class TensorClient(EngineClient):
    """Engines whose requests may bring their adapters."""

    @cached_property
    def _cached(self) -> WeakKeyDictionary[EngineWorker, CachedAdapters]:
        return WeakKeyDictionary()

    def infer(self, request: EngineRequest, adapter: RequestAdapter | None) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps of a request, whose id is chosen here. Closing the generator aborts it."""
        parameters = request.parameters
        partial = PartialOutput(parameters.num_sequences)

        def begin(worker: EngineWorker, presence: Presence) -> StepQueue | AsyncGenerator[GenerationStep, None]:
            resumed = replace(request, given=partial.given)
            if adapter is None:
                return worker.run(resumed, partial.unfinished, presence)
            return self._with_adapter(worker, resumed, adapter, partial.unfinished, presence)

        name = None if adapter is None else adapter.name
        work = Work.generation(request.prompt_ids, parameters.max_new_tokens, parameters.num_sequences, name)
        return self._resumption.stream(begin, partial.add, work)

    async def _with_adapter(
        self, worker: EngineWorker, request: EngineRequest, adapter: RequestAdapter, unfinished: int, presence: Presence
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield a worker's steps, with the adapter that it is given first if it lacks it."""
        for attempt in range(1, MAX_LOADS + 1):
            await self._load(worker, adapter)
            try:
                async with aclosing(worker.run(request, unfinished, presence)) as steps:
                    async for step in steps:
                        yield step
                return
            except AdapterNotFound:
                if attempt == MAX_LOADS:
                    raise

    async def _load(self, worker: EngineWorker, adapter: RequestAdapter) -> None:
        """Load an adapter into a worker, unless it has it; raise InvalidParameter if it cannot be loaded."""
        cached = self._cached.setdefault(worker, CachedAdapters())
        if (source := cached.to_load(adapter, worker.adapters)) is not None:
            with adapter_errors():
                await worker.load_adapter(adapter.name, source)
            cached.note(adapter)

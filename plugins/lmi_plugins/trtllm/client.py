"""The torch engine's client, for requests with drafts and with adapters of their own."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cached_property

from msgspec.structs import replace

from lmi_core.errors import AdapterNotFound
from lmi_core.generation.output import GenerationStep, PartialOutput
from lmi_core.workers.isolation import Presence, Work
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.client.engine_worker import EngineWorker, StepQueue
from lmi_plugins.torch_engine.messages.requests import EngineRequest
from lmi_plugins.trtllm.requests.adapters import CachedAdapters, RequestAdapter, adapter_errors

MAX_LOADS = 3  # of an adapter that others displace before its request has begun


class TensorClient(EngineClient):
    """Engines whose requests may bring their own adapters."""

    @cached_property
    def _adapters(self) -> CachedAdapters:
        return CachedAdapters()

    @property
    def vocabulary(self) -> int:
        """The number of token ids that the model has."""
        return max((each.loaded.vocabulary for each in self.replicas.members if each.loaded is not None), default=0)

    @property
    def _names(self) -> set[str]:
        """The adapters that at least one replica has."""
        return {name for each in self.replicas.members for name in each.adapters}

    def infer(self, request: EngineRequest, adapter: RequestAdapter | None) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps of a request, whose id and adapter's name are chosen here. Closing the generator aborts it.

        Raise InvalidParameter if its adapter is not cached.
        """
        name = None if adapter is None else self._adapters.name_of(adapter, self._names)
        parameters = request.parameters
        partial = PartialOutput(parameters.num_sequences)

        def begin(worker: EngineWorker, presence: Presence) -> StepQueue | AsyncGenerator[GenerationStep, None]:
            resumed = replace(request, adapter=name, given=partial.given)
            if adapter is None:
                return worker.run(resumed, partial.unfinished, presence)
            return self._with_adapter(worker, resumed, adapter, partial.unfinished, presence)

        work = Work.generation(request.prompt_ids, parameters.max_new_tokens, parameters.num_sequences, name)
        return self._resumption.stream(begin, partial.add, work)

    async def _with_adapter(
        self, worker: EngineWorker, request: EngineRequest, adapter: RequestAdapter, unfinished: int, presence: Presence
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield a worker's steps, after giving it the request's adapter if it lacks that.

        Raise InvalidParameter if the adapter cannot be loaded.
        """
        name = request.adapter
        assert name is not None
        for attempt in range(1, MAX_LOADS + 1):
            # The known names may include evicted ones.
            if adapter.source is not None and (attempt > 1 or name not in worker.adapters):
                with adapter_errors():
                    await worker.load_adapter(name, adapter.source)
            if adapter.source is not None and not request.given:  # newer weights may have come since it began
                self._adapters.note(adapter, name, self._names)
            try:
                async with aclosing(worker.run(request, unfinished, presence)) as steps:
                    async for step in steps:
                        yield step
                return
            except AdapterNotFound:
                if adapter.source is None:
                    raise self._adapters.missing(adapter, self._names - {name}) from None
                if attempt == MAX_LOADS:
                    raise

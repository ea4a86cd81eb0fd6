"""The torch engine as its backends see it: replicas in workers, and requests that outlive them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from secrets import randbelow
from typing import Any

from msgspec.structs import replace

from lmi_core.embedding_backend import EmbeddingModel, Vector
from lmi_core.errors import GenerationFailed, LmiError
from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.generation.output import GenerationStep, PartialOutput
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_core.workers.isolation import Presence, Work
from lmi_core.workers.placement import ANYWHERE, Placement
from lmi_core.workers.replicas import Replicas
from lmi_core.workers.resumption import Resumption
from lmi_core.workers.shared_worker import number_of_this_process
from lmi_core.workers.supervisor import LOADING_TIMEOUT
from lmi_plugins.torch_engine.client.early import PREPARE, TARGET
from lmi_plugins.torch_engine.client.engine_worker import EngineWorker, StepQueue
from lmi_plugins.torch_engine.client.placing import endpoint, place, sharing_name
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.messages.requests import (
    AdapterTensors,
    EngineOptions,
    EngineRequest,
    SamplingParameters,
)


class EngineClient:
    """Engines in worker processes. When one dies, its requests continue in another, and a replacement is started."""

    def __init__(
        self,
        options: EngineOptions,
        retry_threshold: int,
        max_stream_delay: float = 0.0,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        loading_timeout: float = LOADING_TIMEOUT,
        *,
        resume: bool = False,
        placement: Placement = ANYWHERE,
        max_idle_time: float = 60,
    ) -> None:
        """Create a client without starting it.

        For `max_stream_delay`, in seconds, see OutputCoalescing; for the other times, see WorkerClient and Replicas.
        """
        self.placement = placement
        self.report: Report = unheard  # receives the first worker's progress in loading its model
        self._options = options
        self._coalescing = OutputCoalescing(max_stream_delay)
        name = sharing_name(options, placement)

        def create(number: int) -> EngineWorker:
            options = place(self._newest_options(), number, self.placement, self.replicas.count)
            worker = EngineWorker(
                options,
                retry_threshold,
                heartbeat_timeout,
                loading_timeout,
                self._coalescing,
                partial(endpoint, TARGET, number, self.placement, PREPARE, name),
                shared=name is not None,
            )
            worker.report = unheard if self.replicas.members else self.report
            return worker

        # Another first choice on each server that shares them
        first, groups = randbelow(1 << 16) if placement.ray_shared else number_of_this_process(), len(placement.groups)
        self.replicas = Replicas(create, placement.replicas, options.max_batch_size, max_idle_time, first, groups)
        self._resumption = Resumption(self.replicas, enabled=resume)

    async def start(self, former: Replicas[Any] | None = None) -> None:
        """Load the model into each replica. Raise ConfigurationError if that fails. For `former` see Replicas."""
        await self.replicas.start(former)

    async def stop(self) -> None:
        await self.replicas.stop()

    @property
    def max_length(self) -> int:
        """The length of a sequence that fits in every replica."""
        return min((each.loaded.max_length for each in self.replicas.members if each.loaded is not None), default=0)

    @property
    def generates(self) -> bool:
        loaded = self.replicas.first.loaded
        return loaded is None or loaded.generates

    @property
    def embedding(self) -> EmbeddingModel | None:
        loaded = self.replicas.first.loaded
        return None if loaded is None else loaded.embedding

    @property
    def in_flight(self) -> int:
        return sum(each.in_flight for each in self.replicas.members)

    @property
    def adapters(self) -> list[str]:
        """The adapters that a request can name: those in every replica."""
        members = self.replicas.members
        names = members[0].adapters if members else self._options.adapters
        return [name for name in names if all(name in other.adapters for other in members)]

    async def load_adapter(self, name: str, source: str | AdapterTensors) -> None:
        """Load an adapter from a directory, or from tensors, which a replaced worker loses.

        Raise InvalidAdapter if that fails.
        """
        await self._change(name, lambda worker: worker.load_adapter(name, source))

    async def pin_adapter(self, name: str, pinned: bool) -> None:
        """Pin an adapter to the device, or unpin it.

        Raise AdapterNotFound, or InvalidAdapter if too many are pinned.
        """
        await self._change(name, lambda worker: worker.pin_adapter(name, pinned))

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter; requests that use it continue. Raise AdapterNotFound if it does not exist."""
        await self._change(name, lambda worker: worker.unload_adapter(name))

    def generate(
        self, prompt_ids: list[int], parameters: SamplingParameters, adapter: str | None = None
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield steps until every sequence has a finish reason. Closing the generator aborts the request."""
        num_sequences = parameters.num_sequences
        work = Work.generation(prompt_ids, parameters.max_new_tokens, num_sequences, adapter)
        partial, weights = PartialOutput(num_sequences), list[object]()

        def begin(worker: EngineWorker, presence: Presence) -> StepQueue:
            given, unfinished = partial.given, partial.unfinished
            weights.append(worker.adapter_state(adapter))
            if given and weights[-1] != weights[0]:
                raise GenerationFailed(
                    f"the request cannot continue: the adapter `{adapter}` was replaced after it started"
                )
            request = EngineRequest("", prompt_ids, parameters, adapter, given=given)
            return worker.run(request, unfinished, presence)

        return self._resumption.stream(begin, partial.add, work)

    def embed(self, inputs: list[EmbeddingInput]) -> AsyncGenerator[Vector, None]:
        """Yield the vector of each input, in the order of computation; closing the generator drops the rest."""
        missing = dict(enumerate(inputs))

        def note(vector: Vector) -> int:
            del missing[vector[0]]
            return len(inputs) - len(missing)

        return self._resumption.stream(
            lambda worker, presence: worker.embed(missing.copy(), presence),
            note,
            Work(rest=sum(len(each.prompt_ids) for each in inputs)),
        )

    def _newest_options(self) -> EngineOptions:
        """Return the options with the current adapters."""
        if not self.replicas.members:
            return self._options
        newest = self.replicas.members[0].options
        return replace(self._options, adapters=newest.adapters, pinned_adapters=newest.pinned_adapters)

    async def _change(self, name: str, work: Callable[[EngineWorker], Awaitable[None]]) -> None:
        """Change an adapter in all replicas; if that fails in one, restore it in the others, and raise the error."""
        async with self.replicas.changing:
            workers = [each for each in self.replicas.members if self.replicas.has(each)] or self.replicas.members
            if len(workers) > 1:
                await asyncio.gather(*(each.available() for each in workers))
            before = [each.options for each in workers]
            results = await asyncio.gather(*(work(each) for each in workers), return_exceptions=True)
            failures = [result for result in results if isinstance(result, BaseException)]
            if failures:
                for worker, options, result in zip(workers, before, results, strict=True):
                    if result is None:
                        await _restore(worker, name, options)
                raise failures[0]


async def _restore(worker: EngineWorker, name: str, before: EngineOptions) -> None:
    """Load the adapter that a worker previously had under that name, if any."""
    with suppress(LmiError):  # it died, and the next one loads all adapters
        if name in before.adapters:
            await worker.load_adapter(name, before.adapters[name])
            await worker.pin_adapter(name, name in before.pinned_adapters)
        else:
            await worker.unload_adapter(name)

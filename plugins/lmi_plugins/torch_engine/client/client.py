"""The server's side of the torch engine: requests to its worker, steps back, and a new worker when one dies."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import msgspec

from lmi_core.embedding_backend import EmbeddingModel, Vector
from lmi_core.errors import BackendUnhealthy, GenerationFailed
from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.generation.output import GenerationStep
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.plugins.early_workers import take_early
from lmi_core.workers.adapter_files import FilesState, state_of
from lmi_core.workers.client import WorkerClient
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_core.workers.isolation import Presence
from lmi_core.workers.item_queue import ItemQueue
from lmi_core.workers.local_process import LocalProcess
from lmi_core.workers.partial_output import PartialOutput
from lmi_core.workers.resumption import EngineLost
from lmi_core.workers.supervisor import LOADING_TIMEOUT
from lmi_plugins.torch_engine.client.early import ENVIRONMENT, PREPARE, TARGET
from lmi_plugins.torch_engine.client.step_queue import StepQueue
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingJob
from lmi_plugins.torch_engine.messages.protocol import (
    Abort,
    AdapterAnswer,
    Embed,
    Figures,
    FromWorker,
    Load,
    LoadAdapter,
    Loaded,
    PinAdapter,
    Steps,
    Submit,
    UnloadAdapter,
    decode_from_worker,
)
from lmi_plugins.torch_engine.messages.requests import (
    AdapterTensors,
    EngineOptions,
    EngineRequest,
    SamplingParameters,
    TensorData,
)


class EngineClient(WorkerClient[FromWorker, str, StepQueue | ItemQueue[Vector]]):
    """An engine in a worker process. When it dies, what it worked on fails and a new one is started."""

    def __init__(
        self,
        options: EngineOptions,
        retry_threshold: int,
        max_stream_delay: float = 0.0,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        loading_timeout: float = LOADING_TIMEOUT,
        *,
        resume: bool = False,
    ) -> None:
        """Create a client that is yet to be started.

        For `max_stream_delay`, in seconds, see OutputCoalescing; for the others WorkerClient.
        """
        super().__init__(
            lambda: take_early(TARGET) or LocalProcess(TARGET, ENVIRONMENT, prepare=PREPARE),
            decode_from_worker,
            retry_threshold,
            heartbeat_timeout,
            loading_timeout,
            resume=resume,
        )
        self._options = options
        self.max_length = 0  # of a sequence
        self._ids = itertools.count()
        self.generates = True  # this and the next as the worker told them last
        self.embedding: EmbeddingModel | None = None
        self._coalescing = OutputCoalescing(max_stream_delay)
        self._calls: dict[str, asyncio.Future[None]] = {}  # that change adapters
        self._adapters = list(options.adapters)
        self._loads = Counter[str]()  # of each adapter, whose weights each may have changed
        self._files: dict[str, FilesState] = {}  # of each adapter when it was loaded
        self._figures = self._figures_before = EngineFigures()  # the latter of workers that are gone

    @property
    def figures(self) -> EngineFigures:
        """What the worker has told of itself last, with what those before it had counted."""
        return msgspec.structs.replace(self._figures, restarts=self.restarts.count)

    @property
    def adapters(self) -> list[str]:
        """The adapters that a request can name, as the worker told them last."""
        return self._adapters

    async def load_adapter(self, name: str, source: str | AdapterTensors) -> None:
        """Load an adapter from a directory, or from tensors, which a new worker will not have. Raise InvalidAdapter."""
        directories = {name: source} if isinstance(source, str) else {}
        files = await asyncio.to_thread(_states, directories)
        await self._change_adapters(LoadAdapter(str(next(self._ids)), name, source))
        self._loads[name] += 1
        self._files |= files
        self._remember_adapters(directories, name)

    async def pin_adapter(self, name: str, pinned: bool) -> None:
        """Keep an adapter on the device, or no longer. Raise AdapterNotFound, or InvalidAdapter for one too many."""
        await self._change_adapters(PinAdapter(str(next(self._ids)), name, pinned))
        others = [each for each in self._options.pinned_adapters if each != name]
        self._options = msgspec.structs.replace(self._options, pinned_adapters=[*others, name] if pinned else others)

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter; requests that run with it go on. Raise AdapterNotFound if there is none."""
        await self._change_adapters(UnloadAdapter(str(next(self._ids)), name))
        self._remember_adapters({}, name)
        pinned = [each for each in self._options.pinned_adapters if each != name]
        self._options = msgspec.structs.replace(self._options, pinned_adapters=pinned)

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    def generate(
        self,
        prompt_ids: list[int],
        parameters: SamplingParameters,
        adapter: str | None = None,
        soft_prompt: TensorData | None = None,
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield steps until every sequence has a finish reason; under load, several of one sequence are merged.

        Closing the generator frees what the engine holds for the request.
        """
        partial, loads = PartialOutput(parameters.num_sequences), self._loads.copy()

        def begin(presence: Presence) -> AsyncGenerator[GenerationStep, None]:
            given = partial.given
            if given and adapter is not None and self._loads[adapter] != loads[adapter]:
                raise GenerationFailed(f"the request cannot go on: the adapter `{adapter}` was replaced since it began")
            request = EngineRequest("", prompt_ids, parameters, adapter, soft_prompt, given=given)
            return self._run(request, partial.unfinished, presence)

        return self._resumption.stream(begin, partial.add)

    async def _run(
        self, request: EngineRequest, num_sequences: int, presence: Presence
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps that the worker has for a request, whose id is chosen here."""
        request_id = str(next(self._ids))
        submit, abort = Submit(msgspec.structs.replace(request, request_id=request_id)), Abort(request_id)
        with self._coalescing.stream() as stream:

            def done() -> None:
                stream.end()
                presence.leave()

            steps = StepQueue(num_sequences, done)
            with self._in_worker(request_id, steps, submit, abort):
                while not steps.read:
                    step = await steps.get()
                    if steps.read:
                        self._end(request_id, abort)
                    yield step
                    await stream.wait()

    def embed(self, inputs: list[EmbeddingInput]) -> AsyncGenerator[Vector, None]:
        """Yield the vector of each input, in the order in which they are made; closing it drops those that wait."""
        missing = dict(enumerate(inputs))

        def note(vector: Vector) -> int:
            del missing[vector[0]]
            return len(inputs) - len(missing)

        return self._resumption.stream(lambda presence: self._embed(missing.copy(), presence), note)

    async def _embed(self, inputs: dict[int, EmbeddingInput], presence: Presence) -> AsyncGenerator[Vector, None]:
        """Yield the vectors that the worker makes of the inputs, by their indices."""
        request_id, indices = str(next(self._ids)), list(inputs)
        embed = Embed(EmbeddingJob(request_id, list(inputs.values())))
        vectors = ItemQueue[Vector](len(inputs), presence.leave)
        with self._in_worker(request_id, vectors, embed, Abort(request_id)):
            for _ in inputs:
                place, vector = await vectors.get()
                yield indices[place], vector

    async def _change_adapters(self, call: LoadAdapter | PinAdapter | UnloadAdapter) -> None:
        self.check_health()
        answer = self._calls[call.call_id] = asyncio.get_running_loop().create_future()
        self._send(call)
        try:
            await answer
        finally:
            del self._calls[call.call_id]

    def _remember_adapters(self, directories: dict[str, str], changed: str) -> None:
        """Keep the directories of adapters for a worker that may have to replace this one."""
        others = {name: directory for name, directory in self._options.adapters.items() if name != changed}
        self._options = msgspec.structs.replace(self._options, adapters=others | directories)

    async def _what_to_load(self) -> Load:
        files = await asyncio.to_thread(_states, self._options.adapters)
        self._loads.update(name for name, state in files.items() if state != self._files.get(name, state))
        self._files |= files
        return Load(self._options)

    def _loaded(self, answer: FromWorker) -> None:
        assert isinstance(answer, Loaded), answer
        self._adapters, self.max_length = answer.adapters, answer.max_length
        self.generates, self.embedding = answer.generates, answer.embedding
        self._options = msgspec.structs.replace(self._options, leaves_out_adapters=True)

    def _deliver(self, message: FromWorker) -> None:
        if isinstance(message, Figures):
            self._figures = message.figures.after(self._figures_before)
            return
        if isinstance(message, AdapterAnswer):
            self._deliver_answer(message)
            return
        assert isinstance(message, Steps), message
        if message.steps or message.vectors:  # a worker whose every step fails has not worked
            self.restarts.worked()
        for request_id, step in message.steps:
            queue = self._requests.get(request_id)
            if isinstance(queue, StepQueue):  # otherwise it was aborted meanwhile
                queue.put(step)
        for request_id, index, vector in message.vectors:
            queue = self._requests.get(request_id)
            if isinstance(queue, ItemQueue):
                queue.put((index, vector))
        company = len({failure.request_id for failure in message.failures if failure.of_step})
        for failure in message.failures:
            failed = self._requests.pop(failure.request_id, None)
            if failed is not None:
                failed.fail(EngineLost(failure.message, company) if failure.of_step else failure.error)

    def _deliver_answer(self, message: AdapterAnswer) -> None:
        if message.failure is None:
            self._adapters = message.names
        answer = self._calls.get(message.call_id)
        if answer is None or answer.done():  # whoever called has left
            return
        if message.failure is not None:
            answer.set_exception(message.failure.error)
        else:
            answer.set_result(None)

    def _lose(self, why: str) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(BackendUnhealthy(f"the adapter was not changed: {why}"))
        self._figures = self._figures_before = self._figures.idle()
        super()._lose(why)


def _states(directories: Mapping[str, str]) -> dict[str, FilesState]:
    return {name: state_of(Path(directory)) for name, directory in directories.items()}

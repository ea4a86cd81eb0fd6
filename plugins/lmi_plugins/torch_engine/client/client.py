"""The server's side of the torch engine: requests to its worker, steps back, and a new worker when one dies."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from lmi_core.embedding_backend import EmbeddingModel, Vector
from lmi_core.errors import BackendUnhealthy, GenerationFailed
from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.generation.output import GenerationStep
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers.adapter_files import FilesState, state_of
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT
from lmi_core.workers.isolation import Place
from lmi_core.workers.messages import PING, Alive, encode
from lmi_core.workers.partial_output import SoFar
from lmi_core.workers.restarts import Restarts
from lmi_core.workers.resumption import EngineLost, Resumption
from lmi_core.workers.supervisor import LOADING_TIMEOUT
from lmi_core.workers.worker import Worker
from lmi_plugins.torch_engine.client.early import TARGET
from lmi_plugins.torch_engine.client.engine_worker import EngineWorker
from lmi_plugins.torch_engine.client.step_queue import StepQueue
from lmi_plugins.torch_engine.client.vector_queue import VectorQueue
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingJob
from lmi_plugins.torch_engine.messages.protocol import (
    Abort,
    AdapterAnswer,
    Embed,
    Figures,
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


class EngineClient:
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

        For the times, in seconds, see OutputCoalescing, Heartbeat and Supervisor.
        `resume`: requests go on in the next worker.
        """
        self._options = options
        self._worker = EngineWorker(
            TARGET,
            self._greet,
            self._deliver,
            self._fail_all,
            retry_threshold,
            PING,
            heartbeat_timeout,
            loading_timeout,
        )
        self._resumption = Resumption(self._worker.available, enabled=resume)
        self._max_length = 0
        self._ids = itertools.count()
        self._streams: dict[str, StepQueue] = {}
        self._vectors: dict[str, VectorQueue] = {}
        self.generates = True  # this and the next as the worker told them last
        self.embedding: EmbeddingModel | None = None
        self._coalescing = OutputCoalescing(max_stream_delay)
        self.report: Report = unheard  # hears how far the worker is with loading its model
        self._calls: dict[str, asyncio.Future[None]] = {}  # that change adapters
        self._adapters = list(options.adapters)
        self._loads = Counter[str]()  # of each adapter, whose weights each may have changed
        self._files: dict[str, FilesState] = {}  # of each adapter when it was loaded
        self._figures = self._figures_before = EngineFigures()  # the latter of workers that are gone

    @property
    def process_id(self) -> int | None:
        """The process id of the worker, for those who watch or test it."""
        return self._worker.process_id

    @property
    def restarts(self) -> Restarts:
        return self._worker.restarts

    @property
    def began(self) -> float:
        """When the worker began to take requests, by the loop's clock: now, while another is to replace it."""
        return self._worker.began

    @property
    def figures(self) -> EngineFigures:
        """What the worker has told of itself last, with what those before it had counted."""
        return msgspec.structs.replace(self._figures, restarts=self.restarts.count)

    @property
    def why_unhealthy(self) -> str:
        """The reason for which requests are refused, while they are."""
        return self._worker.why_unhealthy

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
        return len(self._streams) + len(self._vectors)

    async def start(self) -> int:
        """Start the worker, and return the context length of its model; raise ConfigurationError if it cannot start."""
        await self._worker.start()
        return self._max_length

    async def stop(self) -> None:
        await self._worker.stop()

    def check_health(self) -> None:
        """Raise BackendUnhealthy while no worker takes requests."""
        self._worker.check_health()

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
        so_far, loads = SoFar(parameters.num_sequences), self._loads.copy()

        def begin(place: Place) -> AsyncGenerator[GenerationStep, None]:
            given = so_far.given
            if given and adapter is not None and self._loads[adapter] != loads[adapter]:
                raise GenerationFailed(f"the request cannot go on: the adapter `{adapter}` was replaced since it began")
            request = EngineRequest("", prompt_ids, parameters, adapter, soft_prompt, given=given)
            return self._run(request, so_far.unfinished, place)

        return self._resumption.stream(begin, so_far.add)

    async def _run(
        self, request: EngineRequest, num_sequences: int, place: Place
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps that the worker has for a request, whose id is chosen here."""
        self.check_health()
        request_id = str(next(self._ids))
        with self._coalescing.stream() as stream:

            def done() -> None:
                stream.end()
                place.leave()

            steps = self._streams[request_id] = StepQueue(num_sequences, done)
            self._worker.send(encode(Submit(msgspec.structs.replace(request, request_id=request_id))))
            try:
                while not steps.read:
                    step = await steps.get()
                    if steps.read:
                        self._streams.pop(request_id, None)
                    yield step
                    await stream.wait()
            finally:
                if self._streams.pop(request_id, None) is not None:
                    with suppress(BackendUnhealthy):
                        self._worker.send(encode(Abort(request_id)))

    def embed(self, inputs: list[EmbeddingInput]) -> AsyncGenerator[Vector, None]:
        """Yield the vector of each input, in the order in which they are made; closing it drops those that wait."""
        missing = dict(enumerate(inputs))

        def note(vector: Vector) -> int:
            del missing[vector[0]]
            return len(inputs) - len(missing)

        return self._resumption.stream(lambda _: self._embed(missing.copy()), note)

    async def _embed(self, inputs: dict[int, EmbeddingInput]) -> AsyncGenerator[Vector, None]:
        """Yield the vectors that the worker makes of the inputs, by their indices."""
        self.check_health()
        request_id, indices = str(next(self._ids)), list(inputs)
        vectors = self._vectors[request_id] = VectorQueue(len(inputs))
        self._worker.send(encode(Embed(EmbeddingJob(request_id, list(inputs.values())))))
        try:
            while vectors.missing:
                place, vector = await vectors.get()
                yield indices[place], vector
        finally:
            if self._vectors.pop(request_id, None) is not None and vectors.missing:
                with suppress(BackendUnhealthy):
                    self._worker.send(encode(Abort(request_id)))

    async def _change_adapters(self, call: LoadAdapter | PinAdapter | UnloadAdapter) -> None:
        self.check_health()
        answer = self._calls[call.call_id] = asyncio.get_running_loop().create_future()
        self._worker.send(encode(call))
        try:
            await answer
        finally:
            del self._calls[call.call_id]

    def _remember_adapters(self, directories: dict[str, str], changed: str) -> None:
        """Keep the directories of adapters for a worker that may have to replace this one."""
        others = {name: directory for name, directory in self._options.adapters.items() if name != changed}
        self._options = msgspec.structs.replace(self._options, adapters=others | directories)

    async def _greet(self, worker: Worker) -> None:
        files = await asyncio.to_thread(_states, self._options.adapters)
        self._loads.update(name for name, state in files.items() if state != self._files.get(name, state))
        self._files |= files
        answer = await worker.load(encode(Load(self._options)), decode_from_worker, self.report)
        assert isinstance(answer, Loaded), answer
        self._adapters, self._max_length = answer.adapters, answer.max_length
        self.generates, self.embedding = answer.generates, answer.embedding
        self._options = msgspec.structs.replace(self._options, leaves_out_adapters=True)

    def _deliver(self, data: bytes) -> None:
        message = decode_from_worker(data)
        if isinstance(message, Alive):
            return
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
            stream = self._streams.get(request_id)
            if stream is not None:  # otherwise it was aborted meanwhile
                stream.put(step)
        for request_id, index, vector in message.vectors:
            if (vectors := self._vectors.get(request_id)) is not None:
                vectors.put((index, vector))
        alone = len({failure.request_id for failure in message.failures if failure.of_step}) == 1
        for failure in message.failures:
            failed = self._streams.pop(failure.request_id, None) or self._vectors.pop(failure.request_id, None)
            if failed is not None:
                failed.fail(EngineLost(failure.message, alone=alone) if failure.of_step else failure.error)

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

    def _fail_all(self, why: str) -> None:
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(BackendUnhealthy(f"the adapter was not changed: {why}"))
        streams = [stream for stream in self._streams.values() if not stream.complete]
        lost: list[StepQueue | VectorQueue] = [*streams, *self._vectors.values()]
        self._streams, self._vectors = {}, {}
        self._figures = self._figures_before = self._figures.idle()
        self._resumption.engine_died()
        for stream in lost:
            stream.fail(EngineLost(f"the request was lost: {why}", alone=len(lost) == 1))


def _states(directories: Mapping[str, str]) -> dict[str, FilesState]:
    return {name: state_of(Path(directory)) for name, directory in directories.items()}

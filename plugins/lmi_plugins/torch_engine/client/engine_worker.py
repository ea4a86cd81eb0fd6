"""The server's side of one torch engine: requests to its worker, steps back, and a new worker when one dies."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from lmi_core.embedding_backend import Vector
from lmi_core.errors import BackendUnhealthy, LmiError
from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.generation.output import GenerationStep
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.plugins.early_workers import take_early
from lmi_core.remote.nodes.sending import NodeFiles
from lmi_core.workers.adapter_files import FilesState, state_of
from lmi_core.workers.client import WorkerClient
from lmi_core.workers.conversation import Conversation, Endpoint
from lmi_core.workers.isolation import Presence
from lmi_core.workers.item_queue import ItemQueue
from lmi_core.workers.resumption import EngineLost, EngineTime, current_engine_time
from lmi_core.workers.trial_turn import TrialTurn, Turn
from lmi_plugins.torch_engine.client.early import TARGET
from lmi_plugins.torch_engine.client.placing import with_files
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput, EmbeddingJob
from lmi_plugins.torch_engine.messages.protocol import (
    Abort,
    AdapterAnswer,
    Admitted,
    Busy,
    Embed,
    Failure,
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
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, EngineOptions, EngineRequest
from lmi_plugins.torch_engine.messages.results import extend_step

NO_FIGURES = EngineFigures()


class StepQueue:
    """The unread steps of one request, which its reader iterates over.

    Those of the same sequence are merged while nobody reads them; under load, the reader waits for several.
    """

    def __init__(
        self,
        sequences: int,
        coalescing: OutputCoalescing,
        on_complete: Callable[[], None],
        end: Callable[[], object] = lambda: None,
    ) -> None:
        """`on_complete` is called when the last step arrives; `end` when that step is read, or by `aclose`."""
        self._steps: dict[int, GenerationStep] = {}  # not yet read, by sequence
        self._unfinished = sequences
        self._error: LmiError | None = None
        self._on_complete = on_complete
        self._end = end
        self._ready = asyncio.Event()
        self._begun = self._closed = False  # whether the first step was read, and the last
        self._coalescing, self._stream = coalescing, coalescing.begin()

    def put(self, step: GenerationStep) -> None:
        """Add a step to the readable ones."""
        earlier = self._steps.get(step.sequence_index)
        if earlier is None:
            self._steps[step.sequence_index] = step
        else:
            extend_step(earlier, step)
        if step.finish_reason is not None:
            self._unfinished -= 1
            if not self._unfinished:
                self._complete()
        self._ready.set()

    def fail(self, error: LmiError) -> None:
        """Raise the error to the reader once all earlier steps are read."""
        self._error = error
        self._complete()
        self._ready.set()

    def _complete(self) -> None:
        self._stream.end()
        self._on_complete()

    @property
    def complete(self) -> bool:
        """Whether every step has arrived, read or not."""
        return not self._unfinished

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> GenerationStep:
        if self._begun and self._coalescing.delay:
            await self._stream.wait()
        while not self._steps:
            if self._error is not None:
                raise self._error
            if not self._unfinished:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        self._begun = True
        step = self._steps.pop(next(iter(self._steps)))
        if not self._unfinished and not self._steps:
            self._close()
        return step

    async def aclose(self) -> None:
        """End the request, in its engine too."""
        self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._stream.close()
            self._end()


class EngineWorker(WorkerClient[FromWorker, str, StepQueue | ItemQueue[Vector]]):
    """An engine in a worker process. When it dies, its requests are lost, and a new engine is started."""

    def __init__(
        self,
        options: EngineOptions,
        retry_threshold: int,
        heartbeat_timeout: float,
        loading_timeout: float,
        coalescing: OutputCoalescing,
        endpoint: Callable[[], Endpoint],
        *,
        shared: bool = False,
    ) -> None:
        """Create a client without starting it; for `endpoint` and the times, in seconds, see WorkerClient.

        A worker that was started early is used as the first one. If it is `shared`, other servers have requests in it.
        """
        super().__init__(
            lambda: take_early(TARGET) or endpoint(),
            decode_from_worker,
            retry_threshold,
            heartbeat_timeout,
            loading_timeout,
        )
        if shared:
            self.isolation.share(TrialTurn(self._send, self.available))
        self.options = options  # for the next worker
        self.loaded: Loaded | None = None  # what the worker reported about its model
        self.adapters = list(options.adapters)  # available adapters, as last reported by the worker
        self._ids = itertools.count()
        self._coalescing = coalescing
        self._has_worked = False  # the latest worker; one whose every step fails has not
        self._waiting: dict[str, EngineTime] = {}  # of requests that may wait for those of other servers
        self._calls: dict[str, asyncio.Future[None]] = {}  # that change adapters
        self._files: dict[str, FilesState | object] = {}  # of each adapter when it was loaded
        self._node_files: NodeFiles | None = None  # of the latest worker
        self._figures = self._figures_before = NO_FIGURES  # the latter of workers that are gone

    @property
    def figures(self) -> EngineFigures:
        """The worker's last reported figures, including the counts of its predecessors."""
        return msgspec.structs.replace(self._figures, restarts=self.restarts.count)

    def adapter_state(self, name: str | None) -> object:
        """Return an identifier that distinguishes these weights from others under the same name."""
        return None if name is None else self._files.get(name)

    async def load_adapter(self, name: str, source: str | AdapterTensors) -> None:
        """Load an adapter from a directory, or from tensors, which a replaced worker loses.

        Raise InvalidAdapter if that fails.
        """
        directories = {name: source} if isinstance(source, str) else {}
        files = await asyncio.to_thread(_states, directories) if directories else {}
        if isinstance(source, str) and self._node_files is not None:
            source = str(await self._node_files.bring_adapter(Path(source)))
        await self._change_adapters(LoadAdapter(str(next(self._ids)), name, source))
        kept = {each: state for each, state in self._files.items() if each in self.adapters}  # the others were evicted
        self._files = {**kept, name: files.get(name, object())}
        self._remember_adapters(directories, name)

    async def pin_adapter(self, name: str, pinned: bool) -> None:
        """Pin an adapter to the device, or unpin it. Raise AdapterNotFound, or InvalidAdapter if too many are."""
        await self._change_adapters(PinAdapter(str(next(self._ids)), name, pinned))
        others = [each for each in self.options.pinned_adapters if each != name]
        self.options = msgspec.structs.replace(self.options, pinned_adapters=[*others, name] if pinned else others)

    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter; requests that use it continue. Raise AdapterNotFound if there is none."""
        await self._change_adapters(UnloadAdapter(str(next(self._ids)), name))
        self._remember_adapters({}, name)
        pinned = [each for each in self.options.pinned_adapters if each != name]
        self.options = msgspec.structs.replace(self.options, pinned_adapters=pinned)

    @property
    def in_flight(self) -> int:
        return len(self._requests)

    def run(self, request: EngineRequest, num_sequences: int, presence: Presence) -> StepQueue:
        """Start a request, whose id is chosen here, and return the steps that the worker has for it.

        Closing them frees what the engine holds for the request. Raise BackendUnhealthy while there is no worker.
        """
        request_id = str(next(self._ids))
        self._send(Submit(msgspec.structs.replace(request, request_id=request_id)))

        def end() -> None:
            if self._waiting:
                self._go_on(request_id)
            self._end(request_id, Abort(request_id))

        steps = self._requests[request_id] = StepQueue(num_sequences, self._coalescing, presence.leave, end)
        time = current_engine_time.get(None)
        if self.isolation.turn is not None and time is not None:
            # Until a shared engine begins the request: time limits count no wait for others' requests.
            self._waiting[request_id] = time
            time.pause()
        return steps

    async def embed(self, inputs: dict[int, EmbeddingInput], presence: Presence) -> AsyncGenerator[Vector, None]:
        """Yield the worker's vectors of the inputs, each with its index."""
        request_id, indices = str(next(self._ids)), list(inputs)
        embed = Embed(EmbeddingJob(request_id, list(inputs.values())))
        vectors = ItemQueue[Vector](len(inputs), presence.leave)
        with self._in_worker(request_id, vectors, embed, Abort(request_id)):
            for _ in inputs:
                place, vector = await vectors.get()
                yield indices[place], vector

    def _go_on(self, request_id: str) -> None:
        """Start to count the time of a request that no longer waits for other servers' requests."""
        if (time := self._waiting.pop(request_id, None)) is not None:
            time.begin()

    async def _change_adapters(self, call: LoadAdapter | PinAdapter | UnloadAdapter) -> None:
        self.check_health()
        answer = self._calls[call.call_id] = asyncio.get_running_loop().create_future()
        self._send(call)
        try:
            await answer
        finally:
            del self._calls[call.call_id]

    def _remember_adapters(self, directories: dict[str, str], changed: str) -> None:
        """Keep the directories of the adapters for a worker that replaces this one."""
        others = {name: directory for name, directory in self.options.adapters.items() if name != changed}
        self.options = msgspec.structs.replace(self.options, adapters=others | directories)

    async def _load_message(self, worker: Conversation[FromWorker]) -> Load:
        self._files |= await asyncio.to_thread(_states, self.options.adapters)
        self._node_files = NodeFiles.of(worker)
        return Load(await with_files(self.options, self._node_files, self.report))

    def _on_loaded(self, answer: FromWorker) -> None:
        assert isinstance(answer, Loaded), answer
        self.loaded, self.adapters, self._has_worked = answer, answer.adapters, False
        if self.isolation.turn is not None:
            self.isolation.turn.connect()
        self.options = msgspec.structs.replace(self.options, leaves_out_adapters=True)

    def _deliver(self, message: FromWorker) -> None:
        if not isinstance(message, Steps):
            self._deliver_other(message)
            return
        if not self._has_worked and (message.steps or message.vectors):
            self._has_worked = True
            self.restarts.reset_count()
        for request_id, step in message.steps:
            queue = self._requests.get(request_id)
            if isinstance(queue, StepQueue):  # otherwise, it was aborted in the meantime
                if self._waiting:
                    self._go_on(request_id)
                queue.put(step)
        for request_id, index, vector in message.vectors:
            queue = self._requests.get(request_id)
            if isinstance(queue, ItemQueue):
                queue.put((index, vector))
        if message.failures:
            self._deliver_failures(message.failures)

    def _deliver_other(self, message: FromWorker) -> None:
        if isinstance(message, Figures):
            figures, before = message.figures, self._figures_before
            self._figures = figures if before is NO_FIGURES else figures.after(before)
        elif isinstance(message, AdapterAnswer):
            self._deliver_answer(message)
        elif isinstance(message, Busy):
            self.restarts.reset_count()
        elif isinstance(message, Turn):
            if self.isolation.turn is not None:
                self.isolation.turn.receive(message)
        else:
            assert isinstance(message, Admitted), message
            for request_id in message.request_ids:
                self._go_on(request_id)

    def _deliver_failures(self, failures: Sequence[Failure]) -> None:
        company = len({failure.request_id for failure in failures if failure.of_step})
        for failure in failures:
            failed = self._requests.pop(failure.request_id, None)
            if failed is not None:
                failed.fail(EngineLost(failure.message, company) if failure.of_step else failure.error)

    def _deliver_answer(self, message: AdapterAnswer) -> None:
        if message.failure is None:
            self.adapters = message.names
        answer = self._calls.get(message.call_id)
        if answer is None or answer.done():  # the caller has left
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

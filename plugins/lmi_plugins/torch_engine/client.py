"""The server's side of the torch engine: requests to its worker, steps back, and a new worker when one dies."""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec

from lmi_core.errors import BackendUnhealthy, ConfigurationError, GenerationFailed, LmiError
from lmi_core.generation import GenerationStep
from lmi_core.worker import Worker, WorkerDied
from lmi_plugins.torch_engine.messages import (
    AdapterTensors,
    EngineOptions,
    EngineRequest,
    SamplingParameters,
    TensorData,
)
from lmi_plugins.torch_engine.protocol import (
    Abort,
    AdapterAnswer,
    FromWorker,
    Load,
    LoadAdapter,
    Loaded,
    LoadFailed,
    Steps,
    Submit,
    UnloadAdapter,
    decode_from_worker,
    encode,
)

logger = logging.getLogger(__name__)

WORKER_TARGET = "lmi_plugins.torch_engine.service:run"
WORKER_ENVIRONMENT = {
    # OpenMP's threads else wait in a loop: with as many threads as cores that costs more than all the rest as soon as
    # anything else, such as the server itself, wants a core. GNU's may wait so for some microseconds, as long as it is
    # mostly until the next operation: that is a third faster than to sleep and be woken.
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "1000",
    # glibc else gives logits and activations back to the system at each step, and takes them anew page by page.
    "MALLOC_MMAP_THRESHOLD_": str(64 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",  # drawn for a terminal, and this goes to a log
}
FIRST_RESTART_DELAY = 0.5  # seconds; doubled with each restart in a row
LONGEST_RESTART_DELAY = 30.0

StepOrError = GenerationStep | LmiError


class EngineClient:
    """An engine in a worker process. When it dies, what it worked on fails and a new one is started."""

    def __init__(self, options: EngineOptions, retry_threshold: int) -> None:
        self._options = options
        self._retries_left = self._retry_threshold = retry_threshold
        self._ids = itertools.count()
        self._streams: dict[str, asyncio.Queue[StepOrError]] = {}
        self._calls: dict[str, asyncio.Future[None]] = {}  # that change adapters
        self._adapters = list(options.adapters)
        self._worker: Worker | None = None  # set while it takes requests
        self._supervisor: asyncio.Task[None] | None = None
        self.why_unhealthy = "the engine is starting"  # while it is

    @property
    def process_id(self) -> int | None:
        """The worker's, for those who watch or test it."""
        return self._worker.process_id if self._worker else None

    @property
    def adapters(self) -> list[str]:
        """Those that a request can name, as far as the worker told."""
        return self._adapters

    async def load_adapter(self, name: str, source: str | AdapterTensors) -> None:
        """From a directory, or from tensors, which a new worker will not have. Raises InvalidAdapter."""
        await self._change_adapters(LoadAdapter(str(next(self._ids)), name, source))
        directories = {name: source} if isinstance(source, str) else {}
        self._remember_adapters(directories, name)

    async def unload_adapter(self, name: str) -> None:
        """Requests that run with it go on. Raises AdapterNotFound."""
        await self._change_adapters(UnloadAdapter(str(next(self._ids)), name))
        self._remember_adapters({}, name)

    @property
    def in_flight(self) -> int:
        return len(self._streams)

    async def start(self) -> int:
        """The longest sequence that the loaded model takes. Raises ConfigurationError."""
        worker, max_length = await self._start_worker()
        self._supervisor = asyncio.create_task(self._supervise(worker))
        return max_length

    async def stop(self) -> None:
        if self._supervisor is not None:
            self._supervisor.cancel()
            with suppress(asyncio.CancelledError):
                await self._supervisor
        self._fail_all("the engine was stopped")

    def check_health(self) -> None:
        """Raises BackendUnhealthy."""
        if self._worker is None:
            raise BackendUnhealthy(self.why_unhealthy)

    async def generate(
        self,
        prompt_ids: list[int],
        parameters: SamplingParameters,
        adapter: str | None = None,
        soft_prompt: TensorData | None = None,
    ) -> AsyncGenerator[GenerationStep, None]:
        """Steps until every sequence has a finish reason. Closing it frees what the engine holds for the request."""
        self.check_health()
        assert self._worker is not None
        request_id = str(next(self._ids))
        steps = self._streams[request_id] = asyncio.Queue()
        self._worker.send(encode(Submit(EngineRequest(request_id, prompt_ids, parameters, adapter, soft_prompt))))
        unfinished = parameters.num_sequences
        try:
            while unfinished:
                step = await steps.get()
                if isinstance(step, LmiError):
                    raise step
                if step.finish_reason is not None:
                    unfinished -= 1
                    if not unfinished:
                        del self._streams[request_id]
                yield step
        finally:
            if self._streams.pop(request_id, None) is not None and self._worker is not None:
                self._worker.send(encode(Abort(request_id)))

    async def _change_adapters(self, call: LoadAdapter | UnloadAdapter) -> None:
        self.check_health()
        assert self._worker is not None
        answer = self._calls[call.call_id] = asyncio.get_running_loop().create_future()
        self._worker.send(encode(call))
        try:
            await answer
        finally:
            del self._calls[call.call_id]

    def _remember_adapters(self, directories: dict[str, str], changed: str) -> None:
        """For a worker that has to replace this one."""
        others = {name: directory for name, directory in self._options.adapters.items() if name != changed}
        self._options = msgspec.structs.replace(self._options, adapters=others | directories)

    async def _start_worker(self) -> tuple[Worker, int]:
        worker = Worker(WORKER_TARGET, WORKER_ENVIRONMENT)
        try:
            await worker.start()
            await worker.receive()  # Started
            worker.send(encode(Load(self._options)))
            answer = decode_from_worker(await worker.receive())
        except WorkerDied as death:
            await worker.stop()
            raise ConfigurationError(f"the engine could not be started: {death}; its log above says why") from None
        except BaseException:
            await worker.stop()
            raise
        if isinstance(answer, LoadFailed):
            await worker.stop()
            raise ConfigurationError(answer.message)
        assert isinstance(answer, Loaded), answer
        self._adapters = answer.adapters
        self._worker = worker
        return worker, answer.max_length

    async def _supervise(self, worker: Worker) -> None:
        while True:
            try:
                await self._read(worker)
            except WorkerDied as death:
                self._worker = None
                logger.error("%s; %d requests in it fail", death, len(self._streams))
                self.why_unhealthy = f"{death} and is being restarted"
                self._fail_all(str(death))
            finally:
                self._worker = None
                await worker.stop()
            restarted = await self._restart()
            if restarted is None:
                return
            worker = restarted

    async def _read(self, worker: Worker) -> None:
        while True:
            self._deliver(decode_from_worker(await worker.receive()))

    def _deliver(self, message: FromWorker) -> None:
        if isinstance(message, AdapterAnswer):
            self._deliver_answer(message)
            return
        assert isinstance(message, Steps), message
        self._retries_left = self._retry_threshold
        for request_id, step in message.steps:
            stream = self._streams.get(request_id)
            if stream is not None:  # else it was aborted meanwhile
                stream.put_nowait(step)
        for failure in message.failures:
            stream = self._streams.pop(failure.request_id, None)
            if stream is not None:
                stream.put_nowait(failure.error)

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
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.put_nowait(GenerationFailed(f"the request was lost: {why}"))

    async def _restart(self) -> Worker | None:
        """A new worker, or None when as many restarts in a row as are allowed came to nothing."""
        delay = FIRST_RESTART_DELAY
        while self._retries_left > 0:
            self._retries_left -= 1
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RESTART_DELAY)
            try:
                worker, _ = await self._start_worker()
            except ConfigurationError as error:
                logger.error("the engine could not be restarted: %s", error)
            else:
                logger.warning("the engine was restarted")
                return worker
        self.why_unhealthy = f"the engine was restarted {self._retry_threshold} times in a row and is given up"
        logger.critical(self.why_unhealthy)
        return None

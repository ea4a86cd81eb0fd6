"""vLLM's engine: its asynchronous client in this process, whose core and workers are child processes."""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from weakref import WeakKeyDictionary

from msgspec.structs import replace
from prometheus_client import Metric

from lmi_core.errors import (
    BackendUnhealthy,
    ConfigurationError,
    GenerationFailed,
    InvalidParameter,
    LmiError,
    OutOfMemory,
)
from lmi_core.host.out_of_memory import means_out_of_memory
from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.logs.logs import log_model
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.metrics.request_record import TRACE_HEADERS
from lmi_core.workers.conversation import Place
from lmi_core.workers.heartbeat import HEARTBEAT_TIMEOUT, Heartbeat
from lmi_core.workers.replica import Replica
from lmi_core.workers.resumption import EngineLost
from lmi_core.workers.supervisor import LOADING_TIMEOUT, Restarts, Supervisor
from lmi_plugins.vllm_engine.adapters.adapter import Adapter, copy_files_for
from lmi_plugins.vllm_engine.adapters.slots import AdapterSlots
from lmi_plugins.vllm_engine.arguments.parsing import engine_arguments
from lmi_plugins.vllm_engine.failures import Failures
from lmi_plugins.vllm_engine.library import (
    VERSION,
    AsyncLLM,
    EngineDeadError,
    MultiModalInput,
    PoolingParams,
    PoolingRequestOutput,
    RequestOutput,
    SamplingParams,
    TokensInput,
    VLLMClientError,
    core_process_ids,
    fail_requests,
    generation_eos_token_ids,
    traces,
)
from lmi_plugins.vllm_engine.loading import alone_on, from_arguments, load_engine, shut_down_and_release
from lmi_plugins.vllm_engine.outputs.stream_intervals import StreamIntervals
from lmi_plugins.vllm_engine.pings import Pings, WorkersTime
from lmi_plugins.vllm_engine.processes import kill_with_children
from lmi_plugins.vllm_engine.remote.remote_core import RemoteCore
from lmi_plugins.vllm_engine.requests.verification import verify_guide
from lmi_plugins.vllm_engine.socket_folder import SocketFolder
from lmi_plugins.vllm_engine.statistics import EngineStatistics, statistics_of

logger = logging.getLogger(__name__)

TESTED = "0.32"  # the version of vLLM that this project is tested with
SEEN_SECONDS = 10  # after which vLLM must have noticed that its core was killed
LOST = "the request was lost: vLLM's engine died"

_sockets = SocketFolder()  # shared by all engines, because vLLM reads its path only once


logging.getLogger(AsyncLLM.__module__).addFilter(  # deaths are logged here in one line, and there with a traceback
    lambda record: record.exc_info is None or not isinstance(record.exc_info[1], EngineDeadError)
)


class VllmEngine(Replica):
    """vLLM's engine, which is restarted if it dies."""

    def __init__(
        self,
        arguments: Mapping[str, str],
        retry_threshold: int,
        max_stream_delay: float = 0.0,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        loading_timeout: float = LOADING_TIMEOUT,
        devices: Sequence[int] = (),
        remote: Callable[[], RemoteCore] | None = None,
    ) -> None:
        """Create an engine without starting it, on GPUs of these numbers, or on the first ones that vLLM finds.

        `remote` creates a core on another machine instead. For the times, in seconds, see StreamIntervals, Heartbeat
        and Supervisor.
        """
        super().__init__()
        self.report: Report = unheard  # receives the progress of copying files to another machine
        self._arguments = arguments
        self._devices = devices
        self._create_remote = remote
        self._remote: RemoteCore | None = None
        self._loading_timeout = loading_timeout
        self._stream_intervals = StreamIntervals(max_stream_delay)
        self._supervisor: Supervisor[AsyncLLM] = Supervisor(
            self._create, self._watch, self._end, retry_threshold, loading_timeout
        )
        self._heartbeat = Heartbeat(heartbeat_timeout)
        # Dead engines, with the number of their requests
        self._dead: WeakKeyDictionary[AsyncLLM, int] = WeakKeyDictionary()
        self.adapter_slots = AdapterSlots()
        self._ids = itertools.count()
        self._statistics: EngineStatistics | None = None  # of the running engine
        self._figures_before = EngineFigures()  # of previous engines

    @property
    def restarts(self) -> Restarts:
        return self._supervisor.restarts

    @property
    def figures(self) -> EngineFigures:
        """The engine's current figures, plus the counts of its predecessors."""
        statistics, found = self._statistics, self._figures_before
        if statistics is not None:
            found = statistics.figures().after(found)
        return replace(found, restarts=self.restarts.count)

    @property
    def place(self) -> Place | None:
        return self._remote.place if self._remote is not None and self._supervisor.is_running else None

    @property
    def process_ids(self) -> list[int]:
        """The processes of the engine's cores; none while no engine runs."""
        with suppress(BackendUnhealthy):
            return core_process_ids(self._supervisor.running)
        return []

    def metrics(self) -> Iterable[Metric]:
        """Return the families of vLLM's own metrics, if enabled."""
        return () if self._statistics is None else self._statistics.metrics()

    @property
    def vllm(self) -> AsyncLLM:
        """The running engine. Raise BackendUnhealthy otherwise."""
        engine = self._supervisor.running
        if engine.errored:
            raise self._supervisor.unhealthy()
        return engine

    @property
    def is_available(self) -> bool:
        return self._supervisor.is_running and not self._supervisor.running.errored

    def check_health(self) -> None:
        _ = self.vllm

    async def available(self) -> None:
        await self._supervisor.available()
        while (engine := self._supervisor.running).errored:  # it has died, which was not noticed yet
            await asyncio.wait({engine.output_handler})
            await asyncio.sleep(0)
            await self._supervisor.available()

    def _lost_error(self, engine: AsyncLLM) -> EngineLost:
        """Return the error for requests whose engine has died, some of which notice it late."""
        if engine not in self._dead:
            self._dead[engine] = self.isolation.inside
            self.record_death()
        return EngineLost(LOST, self._dead[engine])

    @property
    def max_length(self) -> int:
        """The maximum number of tokens of a prompt and its answer."""
        return int(self.vllm.model_config.max_model_len)

    def eos_token_ids(self) -> frozenset[int]:
        """The end tokens in the model's generation configuration; the tokenizer may have one more."""
        return generation_eos_token_ids(self.vllm.model_config)

    async def start(self) -> None:
        if not VERSION.startswith(f"{TESTED}."):
            logger.warning("vLLM %s is installed, but this server was tested with %s", VERSION, TESTED)
        await self._supervisor.start()
        if self._remote is not None:  # another node may be busy, or lack the model's files
            self._supervisor.restart_timeout = self._loading_timeout

    async def stop(self) -> None:
        await self._supervisor.stop()

    async def generate(
        self,
        prompt: TokensInput | MultiModalInput,
        parameters: SamplingParams,
        adapter: Adapter | None = None,
        *,
        coalesces: bool = False,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the outputs of vLLM's engine; each has several tokens if the request `coalesces` and many requests run.

        Closing the generator aborts the request. Raise LmiError if the engine fails.
        """
        engine, request_id = self.vllm, str(next(self._ids))
        finished = False
        async with self.adapter_slots.one(adapter):
            try:
                with self._engine_errors(engine), self._stream_intervals.stream() as clock:
                    lora = None if adapter is None else await adapter.checked(engine)
                    if coalesces:
                        parameters.stream_interval = self._stream_intervals.choose()
                    with translated_errors():
                        if parameters.structured_outputs is not None:
                            await verify_guide(engine, parameters)
                        collector = await engine.add_request(
                            request_id,
                            prompt,
                            parameters,
                            lora_request=lora,
                            priority=priority,
                            trace_headers=TRACE_HEADERS.get() if traces(engine) else None,
                        )
                    while not finished:
                        output = await collector.get()
                        clock.read(len(output.outputs[0].token_ids))
                        finished = output.finished
                        if finished:
                            self.restarts.reset_count()
                        yield output
            finally:
                if not finished and not engine.errored:
                    await engine.abort(request_id)

    async def embed(
        self, prompt: TokensInput, parameters: PoolingParams, adapter: Adapter | None = None
    ) -> PoolingRequestOutput:
        """Return the vector of a prompt; cancelling aborts the request. Raise LmiError if the engine fails."""
        engine, request_id = self.vllm, str(next(self._ids))
        async with self.adapter_slots.one(adapter):
            with self._engine_errors(engine), translated_errors():
                lora = None if adapter is None else await adapter.checked(engine)
                async with aclosing(engine.encode(prompt, parameters, request_id, lora_request=lora)) as outputs:
                    output = await anext(outputs)  # the only one
        self.restarts.reset_count()
        return output

    @contextmanager
    def _engine_errors(self, engine: AsyncLLM) -> Iterator[None]:
        """Convert the errors of an engine about a request."""
        try:
            yield
        except EngineDeadError:
            raise self._lost_error(engine) from None
        except LmiError:
            raise
        except Exception as error:  # of whatever class vLLM's reading of its outputs raises
            raise GenerationFailed(f"vLLM failed to process the request: {error}") from error

    async def _create(self) -> AsyncLLM:
        _sockets.enter()
        try:
            return await self._load()
        except BaseException:
            _sockets.leave()
            raise

    async def _load(self) -> AsyncLLM:
        model = log_model.get()  # in the log lines of vLLM's processes, and in its metrics
        self._failures = Failures(model)
        try:
            engine = await (self._load_here(model) if self._create_remote is None else self._load_there(model))
        except ConfigurationError as error:
            if (cause := self._cause) is None:
                raise
            found = OutOfMemory if means_out_of_memory(cause) else ConfigurationError
            raise found(f"{self._arguments['model']}: vLLM cannot load the model: {cause}") from error
        try:
            self._statistics = statistics_of(engine)
            await self.adapter_slots.begin(engine)
        except BaseException:
            await self._shut_down(engine)
            raise
        return engine

    async def _load_here(self, model: str | None) -> AsyncLLM:
        arguments = await asyncio.to_thread(engine_arguments, self._arguments, self._devices)
        if model is not None:
            arguments.served_model_name = model
        async with alone_on(self._devices):
            return await load_engine(partial(from_arguments, arguments))

    async def _load_there(self, model: str | None) -> AsyncLLM:
        assert self._create_remote is not None
        self._remote = self._create_remote()
        engine = await self._remote.load(self._arguments, model, self.report)
        copy_files_for(engine, self._remote.files)
        return engine

    @property
    def _cause(self) -> str | None:
        """The cause of the core's end, if known."""
        return self._failures.cause if self._remote is None else self._remote.cause

    async def _watch(self, engine: AsyncLLM) -> str:
        """Wait until the core dies or freezes, end it, and return the reason."""
        pings, remote = Pings(engine, self._heartbeat), self._remote
        computes = WorkersTime(partial(core_process_ids, engine)).grows if remote is None else remote.computes
        frozen = asyncio.create_task(self._heartbeat.wait_frozen(pings.send, computes))
        try:
            # The first ends when the core dies, or with the engine.
            await asyncio.wait({engine.output_handler, frozen}, return_when=asyncio.FIRST_COMPLETED)
            if not frozen.done():
                if remote is not None:
                    await remote.wait_ended()
                cause = self._cause
                death = "vLLM's engine died" if cause is None else f"vLLM's engine died ({cause})"
                logger.error("%s", death)
                return death
            logger.error("vLLM's engine %s and is killed", frozen.result())
            if remote is not None:
                remote.kill()
            for process_id in core_process_ids(engine):
                kill_with_children(process_id)
            await asyncio.wait({engine.output_handler}, timeout=SEEN_SECONDS)  # informs requests that the core has died
            return f"vLLM's engine {frozen.result()} and was killed"
        finally:
            frozen.cancel()
            pings.cancel()
            self._figures_before, self._statistics = self.figures.idle(), None

    async def _end(self, engine: AsyncLLM) -> None:
        try:
            await self._shut_down(engine)
        finally:
            _sockets.leave()

    async def _shut_down(self, engine: AsyncLLM) -> None:
        engine.output_handler.cancel()  # otherwise, it logs that the core has died
        fail_requests(engine)  # those that have not been informed
        try:
            await asyncio.shield(shut_down_and_release(engine))
        finally:
            fail_requests(engine)  # those that arrived since
            if self._remote is not None:
                await self._remote.stop()


@contextmanager
def translated_errors() -> Iterator[None]:
    """Convert vLLM's errors about an invalid request into InvalidParameter."""
    try:
        yield
    except (VLLMClientError, ValueError) as error:
        raise InvalidParameter(f"vLLM refuses the request: {' '.join(str(error).split())}") from error

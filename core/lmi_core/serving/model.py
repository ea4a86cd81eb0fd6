"""A served model: its plan, its runtime and its queue."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

from lmi_core.admission.admission import Admission, SequenceCounts, Ticket, Usage
from lmi_core.admission.running import RunningCalls
from lmi_core.admission.time_limits import TimeLimits
from lmi_core.admission.turns import AHEAD, DynamicBatch, RollingBatch, TurnQueue
from lmi_core.backend import Backend
from lmi_core.calls.conversations import Conversations
from lmi_core.calls.sessions import Sessions
from lmi_core.configuration.location import without_secrets
from lmi_core.configuration.model_source import weights_folder
from lmi_core.configuration.properties import RequestProperties, ServerProperties
from lmi_core.embedding_backend import EmbeddingBackend, Vector, is_reranker
from lmi_core.errors import ConfigurationError, LmiError, ModelNotFound, ModelNotReady
from lmi_core.formatter import ChatAnswer, FormatterNames, OutputFormatter
from lmi_core.generation.embedding_request import EmbeddingRequest, ValidEmbedding
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import ValidRequest
from lmi_core.generation.tensors import Tensor, TensorBackend
from lmi_core.host.substitution import Substitution
from lmi_core.inspection.chat_template_check import check_template
from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.logs.logs import logging_of
from lmi_core.metrics.model_metrics import ModelMetrics, RequestStatistics
from lmi_core.metrics.request_record import RequestRecord
from lmi_core.model_adapters import ModelAdapters
from lmi_core.plugins.formatters import FormatterRegistry
from lmi_core.remote.fetching import fetch_all
from lmi_core.remote.held_copies import HeldCopies
from lmi_core.script.formatters.customization import Customization, check_adapter, common_adapter
from lmi_core.script.function.adapters import FunctionAdapters
from lmi_core.script.function.runtime import ModelFunction
from lmi_core.script.function.setup import FunctionSetup
from lmi_core.serving.backend_adapters import BackendAdapters
from lmi_core.serving.backend_failures import check_health, one_vector_each, start_runtime
from lmi_core.serving.call_results import generate_steps, yield_until_aborted
from lmi_core.serving.embedding_validation import template_of_pairs, validate_embeddings
from lmi_core.serving.model_plan import ModelPlan
from lmi_core.serving_runtime import RuntimeSetup, ServingRuntime
from lmi_core.tolerance import IgnoredParameters
from lmi_core.workers.replicas import Replicas


class NoBackend:
    """A stand-in for the backend of a model whose function answers requests."""

    def __init__(self, model: str) -> None:
        self._model = model

    def __getattr__(self, name: str) -> NoReturn:
        raise ModelNotFound(f"model `{self._model}` has no engine: its model function answers requests")


class Model:
    """A served model, which accepts requests after `start`."""

    def __init__(self, plan: ModelPlan, formatters: FormatterRegistry) -> None:
        self.plan = plan
        self.name = plan.name
        self.names = plan.names
        self.options: RequestProperties = plan.options  # for requests and answers
        self.server: ServerProperties = plan.server  # server properties that apply to the model
        self.formatters = plan.formatters
        self.chat_formatters: FormatterNames = plan.chat_formatters  # of answers in LMI's schema for chats
        self.chat_template: str | None = plan.chat_template  # in place of the tokenizer's own
        self.configs = plan.configs
        self.fingerprint = plan.fingerprint
        self.ready = False
        self.idle = False  # unloaded; the next call loads it
        self.shut_down = False  # unloaded by the operator, now or soon; calls are refused
        self.idle_adapters: Mapping[str, Path | str] = {}  # adapters to load again when an idle model is loaded
        self.idle_pinned: Collection[str] = ()  # the pinned ones among them
        self.usage = Usage()
        self.created = int(time.time())
        self.progress = LoadingProgress()
        self.running = RunningCalls(plan.options.max_num_queued_tokens)
        self.conversations = Conversations(plan.options.response_store_size)
        self.statistics = RequestStatistics()
        self.metrics = ModelMetrics()
        self.ignored = IgnoredParameters(self.name)
        options, max_running = plan.options, _max_running(plan)
        self.time_limits = TimeLimits.of(options)
        self.admission = Admission(plan.name, plan.server.job_queue_size, max_running, self.time_limits.queue)
        self.turns: TurnQueue = DynamicBatch(*_batch(plan.server)) if options.dynamic_batching else RollingBatch()
        self.sessions = Sessions(options.sessions_expiration) if options.enable_stateful_sessions else None
        self._formatters = formatters
        self._inference_ids = itertools.count(1)
        self.copies = HeldCopies()
        self._create_runtime(plan.setup)
        self.copies.keep("directory", plan.directory)

    def _create_runtime(self, setup: RuntimeSetup[Any]) -> None:
        """Create the runtime, without importing an engine. Raise ConfigurationError for invalid options."""
        plan = self.plan
        self.runtime: ServingRuntime[Any]
        self.adapters: ModelAdapters
        self.function: ModelFunction | None = None
        self.backend: Backend[Any]  # raises ModelNotFound where it is used, if the model function answers instead
        if plan.backend is None:
            self.runtime = self.function = ModelFunction(setup)
            self.backend = cast("Backend[Any]", NoBackend(self.name))
            self.adapters = FunctionAdapters(self.function)
        else:
            self.runtime = self.backend = plan.backend(setup)
            own = plan.directory / plan.setup.properties.adapters
            self.adapters = BackendAdapters(self.backend, plan.code, plan.directory, own, self.copies)
        self._size_queue()

    def _size_queue(self) -> None:
        """Set how many sequences the engines get at the same time: all, if something else schedules them."""
        engines = 1 if self.runtime.replicas is None else max(1, len(self.runtime.replicas.members))
        self.admission.resize(self.server.job_queue_size, engines * _max_running(self.plan))
        if isinstance(self.turns, DynamicBatch):
            self.turns.change(*_batch(self.server))
        elif isinstance(self.turns, RollingBatch) and self.generates and not self.backend.orders_requests:
            size = self.runtime.setup.properties.max_rolling_batch_size
            # No call waits in the engine if the server must know how long calls have waited.
            ahead = 0 if self.options.queue_timeout else max(AHEAD, size // 4)
            self.turns.resize(engines * size, engines * ahead)

    @property
    def warnings(self) -> list[str]:
        """The warnings of the plan, of replacements on this host, and of the runtime."""
        return [*self.plan.warnings, *map(str, self.substitutions), *self.runtime.warnings]

    @property
    def substitutions(self) -> list[Substitution]:
        """Replacements for requested features that this host lacks."""
        return [*self.plan.substitutions, *self.runtime.substitutions]

    @property
    def generates(self) -> bool:
        """Whether a backend generates; otherwise the model function answers."""
        return self.function is None

    @property
    def runtime_name(self) -> str:
        """The name of the backend, or of the runtime that calls the model function."""
        return self.runtime.name

    @property
    def version(self) -> str | None:
        """The only version that requests may name; None allows any."""
        return self.plan.version

    @property
    def model_id(self) -> str | None:
        """The value of `option.model_id`, without secrets in a URL."""
        return without_secrets(given) if (given := self.plan.setup.properties.model_id) is not None else None

    @property
    def files(self) -> Path | None:
        """The folder on this host that contains the model's weights, when loaded; None without one."""
        return weights_folder(self.runtime.setup.directory, self.runtime.setup.properties)

    async def start(self, former: Replicas[Any] | None = None) -> None:
        """Load the model. Raise ConfigurationError if it cannot be loaded, or not in time.

        If the replicas of a former version are given, load only one, on a device that these have left.
        """
        limit = self.options.model_loading_timeout
        try:
            async with asyncio.timeout(limit) as deadline:
                await self._download()
                self.runtime.progress, self.runtime.former = self.progress, former
                try:
                    with logging_of(self.name):
                        await start_runtime(self.runtime, self.name)
                finally:
                    self.runtime.former = None  # it would keep all former versions in memory
        except TimeoutError:
            if not deadline.expired():  # the runtime's own timeout
                raise
            raise ConfigurationError(
                f"model {self.name} did not load within option.model_loading_timeout={limit} seconds"
            ) from None
        tokenizer = getattr(self.backend, "tokenizer", None) if self.generates else None
        await asyncio.to_thread(check_template, self.name, self.chat_template, tokenizer)
        if is_reranker(self.backend):
            configured = self.chat_template if self.options.chat_template is not None else None
            self.chat_template = await asyncio.to_thread(
                template_of_pairs, self.name, configured, self.backend.tokenizer
            )
        if tokenizer is not None:
            await asyncio.to_thread(tokenizer.prepare)
        if self.runtime.replicas is not None:
            self.runtime.replicas.on_change = self._size_queue
            self._size_queue()
        self.progress.report("")
        self.ready = True

    async def _download(self) -> None:
        """Copy remote models to this host, and create the runtime with the copies."""
        downloads = self.plan.runtime.downloads(self.plan.setup)
        if not downloads:
            return
        folders = await fetch_all(downloads, self.copies, self.progress.report)
        try:
            self._create_runtime(self.plan.setup.with_folders(folders))
        except ConfigurationError as error:
            sources = ", ".join(str(model) for model in downloads.values())
            raise ConfigurationError(f"{sources}: {error.message}") from error
        if "model_id" in folders:
            self.configs.model_id_or_path = str(folders["model_id"])

    async def stop(self) -> None:
        self.ready = False
        await self.runtime.stop()

    async def unload(self) -> None:
        """Stop the runtime and release its resources; `start` loads the model again."""
        await self.stop()
        self._create_runtime(self.plan.setup)

    async def become_idle(self) -> None:
        """Unload the model until its next call, and remember its adapters."""
        self.idle_adapters, self.idle_pinned = dict(self.adapters.folders), tuple(self.adapters.pinned)
        self.idle = True  # set first, so that calls wait instead of being refused
        await self.unload()

    def change_server(self, server: ServerProperties, setup: RuntimeSetup[Any]) -> None:
        """Change the server's options, and the runtime's setup at the next load."""
        self.plan, self.server = replace(self.plan, server=server, setup=setup), server
        self._size_queue()

    def fail_calls(self, error: LmiError) -> None:
        """End every call with an error, including calls that have not started."""
        self.running.fail_all(error)
        if self.function is not None:
            self.function.pool.fail_calls(error)

    async def health(self) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless the model can accept requests."""
        if not self.ready and not self.idle:
            stage = f": {self.progress}" if self.progress.what else ""
            raise ModelNotReady(f"model {self.name} is loading{stage}")
        if self.shut_down:
            raise self._refusal()
        if self.ready:
            await check_health(self.runtime)

    def check_place(self) -> None:
        """Raise Overloaded if the queue is full, or ModelNotReady; do not take a place."""
        self._check_takes_calls()
        self.admission.check()

    def admit(self) -> Ticket:
        """Take a place in the queue. Raise Overloaded if it is full, or ModelNotReady."""
        self._check_takes_calls()
        return self.admission.admit()

    def _check_takes_calls(self) -> None:
        if not self.ready and not self.idle:
            if self.progress.what:
                raise ModelNotReady(f"model {self.name} is loading: {self.progress}")
            raise ModelNotReady(f"model {self.name} is not ready")
        if self.shut_down:
            raise self._refusal()
        self.running.check_tokens()

    def _refusal(self) -> ModelNotReady:
        refused = ModelNotReady(f"all workers of model {self.name} have been shut down (max_worker=0)")
        refused.retry_after = None  # only its operator opens it again
        return refused

    @property
    def sequence_counts(self) -> SequenceCounts:
        """The sequences in the queue now; may be counted in any thread."""
        taken, running = self.admission.taken, self.runtime.figures().running if self.ready else 0
        if running is None:  # assume that the engine works on all that it has received
            running = taken - self.turns.waiting
        running = max(0, min(running, taken))  # the engine may have counted before the most recent requests ended
        return SequenceCounts(running, taken - running)

    @property
    def adapter_folders(self) -> Mapping[str, Path | str]:
        """The source of each adapter that a request can name now."""
        return self.idle_adapters if self.idle else self.adapters.folders

    @property
    def pinned_adapters(self) -> Collection[str]:
        """The pinned adapters, which are never evicted."""
        return self.idle_pinned if self.idle else self.adapters.pinned

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The adapters that requests may name instead of the model: a backend's, except for the model's own names."""
        if not self.generates:
            return ()
        return tuple(name for name in self.adapter_folders if name not in self.names)

    def name_asked(self, name: str | None) -> str:
        """Return the name of the model or adapter in a request, or the first served name by default."""
        return name if name and (name in self.names or name in self.adapter_names) else self.names[0]

    def new_formatter(self, name: str) -> OutputFormatter:
        """Create the output formatter of that name. Raise PluginError if no plugin registers it."""
        return self._formatters.create(name)

    def new_chat_formatter(self, name: str, answer: ChatAnswer) -> OutputFormatter:
        """Create the chat formatter of that name or, without one, the output formatter."""
        return self._formatters.create_for_chat(name, answer)

    def customize(self, adapters: Sequence[str | None], request_id: str) -> Customization:
        """Return a call's formatters, from the code of the model or of its adapters.

        `adapters` is empty, or has one adapter for all prompts or one for each; None means no adapter. Raise
        AdapterNotFound if one does not exist.
        """
        backend, code = self.backend, self.plan.code
        own = Customization(
            code.base, getattr(backend, "tokenizer", None), self.configs, self.options, request_id, model=self.name
        )
        if adapters:
            for name in dict.fromkeys(adapters):
                if name is not None:
                    check_adapter(name, code, backend)
            own.adapter = common_adapter(adapters)
            own.adapters = tuple(name if name in backend.adapters else None for name in adapters)
            own.formatters = code.of(own.adapter)
        return own

    def generate(
        self,
        requests: Sequence[ValidRequest],
        request_id: str = "",
        record: RequestRecord | None = None,
        client: str = "",
    ) -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps of a call's prompts as they arrive.

        Closing the generator aborts them all; so does `running.abort`. Clients take turns. After `running.abort`, each
        unfinished sequence ends with its own step. `record` gets the times of events.
        """
        return generate_steps(self, requests, request_id, record or RequestRecord("", request_id), client)

    def infer(
        self, inputs: Mapping[str, Tensor], request_id: str, record: RequestRecord, client: str
    ) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield the responses of a tensor backend. Closing the generator aborts the call; so does `running.abort`."""
        backend = self.backend
        assert isinstance(backend, TensorBackend), backend.name
        return yield_until_aborted(
            self, (), request_id, record, client, lambda: backend.infer(next(self._inference_ids), inputs), "response"
        )

    async def validate_embeddings(self, requests: Sequence[EmbeddingRequest]) -> list[ValidEmbedding]:
        """Return the validated requests. Raise InvalidParameter, or ModelNotFound if the model has no such answers."""
        return await validate_embeddings(requests, self.backend, self.name, self.chat_template)

    def embed(
        self, requests: Sequence[ValidEmbedding], request_id: str, record: RequestRecord, client: str
    ) -> AsyncGenerator[Vector, None]:
        """Yield the vectors as they arrive. Closing the generator aborts the call; so does `running.abort`."""
        backend = self.backend
        assert isinstance(backend, EmbeddingBackend), backend.name

        def begin() -> AsyncGenerator[Vector, None]:
            return one_vector_each(self.backend, backend.embed(requests), len(requests))

        return yield_until_aborted(self, requests, request_id, record, client, begin, "vector")


def _max_running(plan: ModelPlan) -> int:
    """Return how many sequences of a backend, or calls of the model function, run at the same time."""
    if isinstance(plan.setup, FunctionSetup) and not plan.setup.pool.rolling:
        return plan.setup.pool.count.maximum * plan.setup.pool.batch_size
    return plan.server.batch_size if plan.options.dynamic_batching else plan.setup.properties.max_rolling_batch_size


def _batch(server: ServerProperties) -> tuple[int, float]:
    """Return the size of a dynamic batch, and the maximum wait of its first call in seconds."""
    return server.batch_size, server.max_batch_delay / 1000

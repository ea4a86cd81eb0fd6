"""A served model: its plan, its runtime and its queue."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from lmi_core.backend import Backend
from lmi_core.calls.generation import Generation
from lmi_core.chats.chat_formatter import ChatAnswer
from lmi_core.configuration.formatter_choice import FormatterNames
from lmi_core.configuration.model_source import model_source
from lmi_core.configuration.properties import RequestProperties, ServerProperties
from lmi_core.embeddings.backend import EmbeddingBackend, Vector, require_embeddings
from lmi_core.embeddings.request import EmbeddingRequest, ValidEmbedding
from lmi_core.embeddings.validation import validate_embedding
from lmi_core.engines.merge import generate_all
from lmi_core.errors import ConfigurationError, ModelNotFound, ModelNotReady, Overloaded, RequestAborted
from lmi_core.formatter import OutputFormatter
from lmi_core.generation import GenerationStep
from lmi_core.payloads.tolerance import IgnoredParameters, drop_unknown
from lmi_core.plugins.formatters import FormatterRegistry
from lmi_core.remote.fetching import fetch_all
from lmi_core.request import GenerationRequest, ValidRequest
from lmi_core.script.formatters.customization import Customization, check_adapter, common_adapter
from lmi_core.script.function.adapters import FunctionAdapters
from lmi_core.script.function.runtime import ModelFunction
from lmi_core.serving.backend_adapters import BackendAdapters
from lmi_core.serving.conversations import Conversations
from lmi_core.serving.dynamic_batch import DynamicBatch
from lmi_core.serving.model_adapters import ModelAdapters
from lmi_core.serving.model_plan import ModelPlan
from lmi_core.serving.request_metrics import logged
from lmi_core.serving.request_statistics import RequestStatistics
from lmi_core.serving.running import RunningCall, RunningCalls
from lmi_core.serving.sessions import Sessions
from lmi_core.serving.validation import validate, with_images
from lmi_core.serving_runtime import RuntimeSetup, ServingRuntime
from lmi_core.tensors import Tensor, TensorBackend

T = TypeVar("T")

LONG_PROMPT = 20_000  # characters; about 5 ms of tokenizing
CHARACTERS_PER_TEXT = 100  # that take as long as what each text takes whatever its length


class Model:
    """A served model, which takes requests once `start` has succeeded."""

    def __init__(self, plan: ModelPlan, formatters: FormatterRegistry) -> None:
        self.plan = plan
        self.name = plan.name
        self.names = plan.names
        self.formatters = plan.formatters
        self.configs = plan.configs
        self.fingerprint = plan.fingerprint
        self.ready = False
        self.created = int(time.time())
        self.running = RunningCalls()
        self.conversations = Conversations(plan.options.response_store_size)
        self.statistics = RequestStatistics()
        self.ignored = IgnoredParameters(self.name)
        self.max_in_flight = plan.server.job_queue_size + plan.setup.properties.max_rolling_batch_size
        options = plan.options
        self.sessions = Sessions(options.sessions_expiration) if options.enable_stateful_sessions else None
        self.dynamic_batch: DynamicBatch | None = None
        if plan.options.dynamic_batching:
            self.dynamic_batch = DynamicBatch(plan.server.batch_size, plan.server.max_batch_delay / 1000)
        self._formatters = formatters
        self._in_flight = 0
        self._inference_ids = itertools.count(1)
        self._tokenizing = asyncio.Lock()  # huge prompts occupy at most one core
        self._create_runtime(plan.setup)

    def _create_runtime(self, setup: RuntimeSetup[Any]) -> None:
        """Create the runtime, without importing an engine. Raise ConfigurationError where its options are wrong."""
        plan = self.plan
        self.runtime: ServingRuntime[Any]
        self.adapters: ModelAdapters
        self.function: ModelFunction | None = None
        self._backend: Backend[Any] | None = None
        if plan.backend is None:
            self.runtime = self.function = ModelFunction(setup)
            self.adapters = FunctionAdapters(self.function)
        else:
            self.runtime = self._backend = plan.backend(setup)
            own = plan.directory / plan.setup.properties.adapters
            self.adapters = BackendAdapters(self._backend, plan.code, plan.directory, own)

    @property
    def warnings(self) -> list[str]:
        """The warnings of the plan and of the runtime."""
        return [*self.plan.warnings, *self.runtime.warnings]

    @property
    def backend(self) -> Backend[Any]:
        """The model's backend. Raise ModelNotFound where the model function answers instead."""
        if self._backend is None:
            raise ModelNotFound(f"model `{self.name}` has no engine: its model function answers requests")
        return self._backend

    @property
    def generates(self) -> bool:
        """Whether a backend generates; otherwise the model function answers."""
        return self._backend is not None

    @property
    def runtime_name(self) -> str:
        """The name of the backend, or of the runtime that calls the model function."""
        return self.runtime.name

    @property
    def options(self) -> RequestProperties:
        """The options of the model's requests and answers."""
        return self.plan.options

    @property
    def server(self) -> ServerProperties:
        """The server's options for the model."""
        return self.plan.server

    @property
    def version(self) -> str | None:
        """The only version that requests may ask for; None allows any."""
        return self.plan.version

    @property
    def model_id(self) -> str | None:
        """The value of `option.model_id`."""
        model_id: str | None = self.plan.setup.properties.model_id
        return model_id

    @property
    def files(self) -> Path | None:
        """The folder on this host that holds the model's weights, once it is loaded; None without one."""
        setup = self.runtime.setup
        try:
            folder = Path(model_source(setup.directory, setup.properties))
        except ConfigurationError:  # a backend without weights
            return None
        return folder if folder.is_dir() else None

    @property
    def chat_formatters(self) -> FormatterNames:
        """The formatter names of answers in LMI's schema for chats."""
        return self.plan.chat_formatters

    @property
    def chat_template(self) -> str | None:
        """The chat template that overrides the tokenizer's own, or None."""
        return self.plan.chat_template

    async def start(self) -> None:
        """Load the model. Raise ConfigurationError when it cannot be loaded, also when that takes too long."""
        limit = self.plan.options.model_loading_timeout
        try:
            async with asyncio.timeout(limit) as deadline:
                await self._download()
                await self.runtime.start()
        except TimeoutError:
            if not deadline.expired():  # the runtime's own
                raise
            raise ConfigurationError(
                f"model {self.name} did not load within option.model_loading_timeout={limit} seconds"
            ) from None
        self.ready = True

    async def _download(self) -> None:
        """Copy remote models to this host, and create the runtime from the copies."""
        downloads = self.plan.runtime.downloads(self.plan.setup)
        if not downloads:
            return
        folders = await fetch_all(downloads)
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

    async def health(self) -> None:
        """Raise ModelNotReady or BackendUnhealthy unless the model can take requests."""
        if not self.ready:
            raise ModelNotReady(f"model {self.name} is loading")
        await self.runtime.health()

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Enter the bounded queue, before the request is read. Raise Overloaded where the queue is full."""
        if not self.ready:
            raise ModelNotReady(f"model {self.name} is not ready")
        if self._in_flight >= self.max_in_flight:
            raise Overloaded(f"model {self.name} has {self._in_flight} requests in its queue, which is full")
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The adapters that requests may name in place of the model: those of a backend, but for its own names."""
        if not self.generates:
            return ()
        return tuple(name for name in self.adapters.folders if name not in self.names)

    def name_asked(self, name: str | None) -> str:
        """Return the name of the model or adapter that a request gives or, if it gives none, the first served name."""
        return name if name and (name in self.names or name in self.adapter_names) else self.names[0]

    def new_formatter(self, name: str) -> OutputFormatter:
        """Create the output formatter of that name. Raise PluginError where no plugin registers it."""
        return self._formatters.create(name)

    def new_chat_formatter(self, name: str, answer: ChatAnswer) -> OutputFormatter:
        """Create the chat formatter of that name or, without one, the output formatter."""
        return self._formatters.create_for_chat(name, answer)

    def customize(self, adapters: Sequence[str | None], request_id: str) -> Customization:
        """Return a call's formatters, from the model's own code or from that of the adapters that it names.

        `adapters` are none, one for all prompts, or one for each; None is the model as it is. Raise AdapterNotFound.
        """
        for name in dict.fromkeys(adapters):
            if name is not None:
                check_adapter(name, self.plan.code, self.backend)
        adapter = common_adapter(adapters)
        loras = tuple(name if name in self.backend.adapters else None for name in adapters)
        formatters = self.plan.code.of(adapter)
        tokenizer = getattr(self.backend, "tokenizer", None)
        return Customization(
            formatters, tokenizer, self.configs, self.plan.options, request_id, adapter, loras, model=self.name
        )

    def drop_unknown(self, generation: Generation) -> Generation:
        """Drop unknown parameters, adding their names to `ignored`. Raise InvalidParameter where one must not be."""
        strict = generation.strict or self.plan.options.strict_parameters
        dropped = [drop_unknown(request, self.backend, strict) for request in generation.requests]
        ignored = dict.fromkeys(name for _, names in dropped for name in names)
        requests = tuple(request for request, _ in dropped)
        return replace(generation, requests=requests, ignored=(*generation.ignored, *ignored))

    async def validate(self, requests: Sequence[GenerationRequest], request_id: str) -> list[ValidRequest]:
        """Return the requests, checked against the backend; long prompts are tokenized beside the event loop.

        Raise InvalidParameter, or InvalidPayload for images.
        """
        requests = [await self._shortened(request) for request in requests]
        if any(request.images for request in requests):
            requests = [await with_images(request, self.backend) for request in requests]
        if sum(len(request.prompt) for request in requests) > LONG_PROMPT:
            async with self._tokenizing:
                return await asyncio.to_thread(self._validate, requests, request_id)
        return self._validate(requests, request_id)

    async def _shortened(self, request: GenerationRequest) -> GenerationRequest:
        if request.shorten is None:
            return request
        async with self._tokenizing:
            prompt, images = await asyncio.to_thread(request.shorten)
        return replace(request, prompt=prompt, images=images, shorten=None)

    def _validate(self, requests: Sequence[GenerationRequest], request_id: str) -> list[ValidRequest]:
        if len(requests) == 1:
            return [validate(requests[0], self.backend, request_id)]
        return [validate(request, self.backend, f"{request_id}-{i}") for i, request in enumerate(requests)]

    def generate(self, requests: Sequence[ValidRequest], request_id: str = "") -> AsyncGenerator[GenerationStep, None]:
        """Yield the steps of a call's prompts as they come. Closing it aborts them all; so does `running.abort`.

        After `running.abort` each unfinished sequence ends with a step of its own.
        """
        steps = self._generate(requests, request_id)
        return logged(request_id, requests, steps) if self.plan.server.log_request_metric else steps

    async def _generate(
        self, requests: Sequence[ValidRequest], request_id: str
    ) -> AsyncGenerator[GenerationStep, None]:
        unfinished = sequences(requests)
        measured = self.statistics.measure(len(requests))
        with measured as outcome, self.running.call(request_id, self.plan.options.predict_timeout) as call:
            source = self._in_batch(call, lambda: generate_all(self.backend, requests))
            async with aclosing(call.until_aborted(source)) as steps:
                async for step in steps:
                    if step.finish_reason is not None:
                        unfinished.discard((step.prompt_index, step.sequence_index))
                    yield step
            outcome.succeeds = not call.aborted
        if call.aborted:
            for place, index in sorted(unfinished):
                yield GenerationStep([], "abort", index, prompt_index=place)

    def infer(self, inputs: Mapping[str, Tensor], request_id: str = "") -> AsyncGenerator[Mapping[str, Tensor], None]:
        """Yield the responses of a backend that takes tensors. Closing it aborts the call; so does `running.abort`."""
        backend = self.backend
        assert isinstance(backend, TensorBackend), backend.name
        return self._all_or_aborted(request_id, lambda: backend.infer(next(self._inference_ids), inputs))

    async def validate_embeddings(self, requests: Sequence[EmbeddingRequest]) -> list[ValidEmbedding]:
        """Return the requests, checked against the model; much text is tokenized beside the event loop.

        Raise InvalidParameter, or ModelNotFound for a model that makes no embeddings.
        """
        backend = self.backend
        model = require_embeddings(backend, self.name)

        def validated() -> list[ValidEmbedding]:
            return [validate_embedding(request, model, backend.tokenizer) for request in requests]

        if sum(len(request.text) + CHARACTERS_PER_TEXT for request in requests) > LONG_PROMPT:
            async with self._tokenizing:
                return await asyncio.to_thread(validated)
        return validated()

    def embed(self, requests: Sequence[ValidEmbedding], request_id: str = "") -> AsyncGenerator[Vector, None]:
        """Yield the vectors of the requests as they come. Closing it aborts the call; so does `running.abort`."""
        backend = self.backend
        assert isinstance(backend, EmbeddingBackend), backend.name
        return self._all_or_aborted(request_id, lambda: backend.embed(requests))

    async def _all_or_aborted(
        self, request_id: str, begin: Callable[[], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        """Yield what an answer that is useless in parts is made of. Raise RequestAborted where others end the call."""
        measured = self.statistics.measure(1)
        with measured as outcome, self.running.call(request_id, self.plan.options.predict_timeout) as call:
            async with aclosing(call.until_aborted(self._in_batch(call, begin))) as items:
                async for item in items:
                    yield item
            outcome.succeeds = not call.aborted
        if call.aborted:
            raise RequestAborted("the request was aborted")

    def _in_batch(self, call: RunningCall, begin: Callable[[], AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
        return begin() if self.dynamic_batch is None else self._in_dynamic_batch(self.dynamic_batch, call, begin)

    async def _in_dynamic_batch(
        self, batch: DynamicBatch, call: RunningCall, begin: Callable[[], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        call.wait_for_place()
        async with batch.member():
            call.wait_for_step()
            async with aclosing(begin()) as items:
                async for item in items:
                    yield item


def sequences(requests: Sequence[ValidRequest]) -> set[tuple[int, int]]:
    """Return the sequences of the requests as pairs of prompt index and sequence index."""
    return {(place, i) for place, request in enumerate(requests) for i in range(request.parameters.num_sequences)}

"""One served model: its configuration, its backend and its queue."""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from lmi_core.backend import Backend, BackendSetup
from lmi_core.chats.chat_formatter import ChatAnswer
from lmi_core.chats.chat_template import read_chat_template
from lmi_core.configuration.backend_choice import choose_backend, foreign_keys
from lmi_core.configuration.configuration import Configuration, Given
from lmi_core.configuration.devices import visible_gpus
from lmi_core.configuration.formatter_choice import FormatterNames, resolve, resolve_chat
from lmi_core.configuration.properties import OPTION_PREFIX, HandlerProperties, ModelProperties, ServerProperties
from lmi_core.engines.merge import merge_prompts
from lmi_core.errors import ConfigurationError, ModelNotReady, Overloaded, RequestAborted
from lmi_core.formatter import OutputFormatter
from lmi_core.generation import GenerationStep
from lmi_core.handler import Call, Generation
from lmi_core.payloads.tolerance import IgnoredParameters, drop_unknown
from lmi_core.plugins.loading import Plugins
from lmi_core.remote.fetching import fetch_all
from lmi_core.request import GenerationRequest, ValidRequest
from lmi_core.script.formatters.customization import Customization, check_adapter, common_adapter, take_adapters
from lmi_core.script.formatters.model_code import ModelCode, load_code
from lmi_core.script.formatters.model_script import SCRIPT
from lmi_core.script.function.backend import choose_handler, find_handler, handler_setup
from lmi_core.script.import_checks import import_warnings
from lmi_core.serving.adapters import ModelAdapters
from lmi_core.serving.dynamic_batch import DynamicBatch, choose_batching
from lmi_core.serving.request_metrics import logged
from lmi_core.serving.running import RunningCall, RunningCalls
from lmi_core.serving.validation import validate, with_images
from lmi_core.tensors import Tensor, TensorBackend

T = TypeVar("T")

LONG_PROMPT = 20_000  # characters; about 5 ms of tokenizing


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """What a model directory asks for, checked, with nothing started."""

    name: str
    directory: Path
    configuration: Configuration
    server: ServerProperties
    options: HandlerProperties
    backend: type[Backend[Any]]
    backend_reason: str
    setup: BackendSetup[Any]
    formatters: FormatterNames
    chat_formatters: FormatterNames
    chat_template: str | None  # in place of the tokenizer's own
    code: ModelCode = field(default_factory=ModelCode)
    version: str | None = None  # the only one that requests may ask for; None is any

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that requests may give the model: those of `option.served_model_name`, then its own."""
        return tuple(dict.fromkeys([*self.options.served_model_names, self.name]))

    @property
    def configs(self) -> SimpleNamespace:
        """Every option with its value in force, as text, for the code of the model's author."""
        values = {each.key.removeprefix(OPTION_PREFIX): each.value for each in self.configuration.effective()}
        return SimpleNamespace(**values, model_dir=str(self.directory), model_id_or_path=values.get("model_id"))

    @property
    def warnings(self) -> list[str]:
        """What is given and has another effect than its author may think."""
        return [*self.configuration.warnings, *self.code.warnings()]


def read_plan(
    name: str,
    directory: Path,
    environment: Mapping[str, str],
    plugins: Plugins,
    common: Iterable[Given] = (),
    version: str | None = None,
) -> ModelPlan:
    """Read and check a model directory; imports no engine. Raises ConfigurationError with all that is wrong.

    `common` are the server's keys for all its models.
    """
    configuration = Configuration.read(directory, environment, common)
    try:
        plan = _read_plan(name, directory, configuration, plugins, version)
    except ConfigurationError as error:
        raise type(error)(_all_that_is_wrong(configuration, error)) from error
    configuration.raise_errors()
    return plan


def _all_that_is_wrong(configuration: Configuration, last: ConfigurationError) -> str:
    errors = "\n".join(configuration.errors)
    further = [] if last.message == errors else [last.message]
    return "\n".join([*configuration.errors, *further, *(f"warning: {each}" for each in configuration.warnings)])


def _read_plan(
    name: str, directory: Path, configuration: Configuration, plugins: Plugins, version: str | None
) -> ModelPlan:
    server = configuration.load(ServerProperties)
    options = configuration.load(HandlerProperties)
    script = find_handler(directory, options)
    if script is None:
        options = choose_batching(server, options, configuration)
        configuration.warnings += one_copy_warnings(server)
    backend, reason = (
        choose_handler(script, configuration, options)
        if script
        else choose_backend(options.rolling_batch, plugins.backends)
    )
    properties = configuration.load(backend.properties_type)
    passed: Collection[str] = configuration.undeclared_options()
    if passed and script is None:
        passed = backend.engine_arguments()
    arguments = configuration.pass_through(passed)
    configuration.explain_unread(foreign_keys(backend, plugins.backends))
    configuration.raise_errors()
    code = ModelCode() if script else load_code(directory, options, plugins, directory / properties.adapters)
    base_options = code.base_options(options, plugins)
    formatters, chat_formatters = resolve(base_options), resolve_chat(base_options)
    for formatter in (formatters.whole, formatters.stream):
        plugins.formatters.get(formatter)
    for formatter in (chat_formatters.whole, chat_formatters.stream):
        if formatter not in plugins.chat_formatters:
            plugins.formatters.get(formatter)
    configuration.warnings += import_warnings(directory / (options.script or SCRIPT), options.enable_venv)
    configuration.warnings += adapters_warnings(directory, properties)
    setup: BackendSetup[Any] = BackendSetup(directory, properties, arguments, server.retry_threshold)
    if script is not None:
        setup = handler_setup(setup, script, configuration, server, options)
    template = read_chat_template(options.chat_template, directory)
    return ModelPlan(
        name=name,
        directory=directory,
        configuration=configuration,
        server=server,
        options=options,
        backend=backend,
        backend_reason=reason,
        setup=setup,
        formatters=formatters,
        chat_formatters=chat_formatters,
        chat_template=template,
        code=code,
        version=version,
    )


def adapters_warnings(directory: Path, properties: ModelProperties) -> list[str]:
    """Return what to say of a folder of adapters that was named, and is not there."""
    default = ModelProperties.model_fields["adapters"].default
    if properties.adapters == default or (directory / properties.adapters).is_dir():
        return []
    return [f"option.adapters={properties.adapters}: there is no such folder in the model directory"]


def one_copy_warnings(server: ServerProperties) -> list[str]:
    """Return what to say of workers where an engine serves the model, which DJLServing would load once for each."""
    fewest, most = server.workers(visible_gpus())
    if most == 1:
        return []
    return [f"{fewest} to {most} workers: the model is loaded once, and its engine batches all requests"]


class Model:
    """A model as it is served. `start` makes it ready; until then, and after a failure, it takes no request."""

    def __init__(self, plan: ModelPlan, plugins: Plugins) -> None:
        self.plan = plan
        self.name = plan.name
        self.names = plan.names
        self.plugins = plugins
        self.formatters = plan.formatters
        self.configs = plan.configs
        self.backend: Backend[Any] = plan.backend(plan.setup)
        self.adapters = self._model_adapters()
        self.ready = False
        self.created = int(time.time())
        self.running = RunningCalls()
        self.ignored = IgnoredParameters(self.name)
        self._in_flight = 0
        self._inference_ids = itertools.count(1)
        self._tokenizing = asyncio.Lock()  # huge prompts take a core at most
        self.most_in_flight = plan.server.job_queue_size + plan.setup.properties.max_rolling_batch_size
        self.dynamic_batch: DynamicBatch | None = None
        if plan.options.dynamic_batching:
            self.dynamic_batch = DynamicBatch(plan.server.batch_size, plan.server.max_batch_delay / 1000)

    @property
    def warnings(self) -> list[str]:
        """Those of the plan, and what the engine does otherwise than the directory asks."""
        return [*self.plan.warnings, *self.backend.warnings]

    async def start(self) -> None:
        """Raises ConfigurationError when the model cannot be loaded, also when that takes too long."""
        limit = self.plan.options.model_loading_timeout
        try:
            async with asyncio.timeout(limit) as deadline:
                await self._download()
                await self.backend.start()
        except TimeoutError:
            if not deadline.expired():  # the backend's own
                raise
            raise ConfigurationError(
                f"model {self.name} did not load within option.model_loading_timeout={limit} seconds"
            ) from None
        self.ready = True

    async def _download(self) -> None:
        """Copy what lies elsewhere to this host, and take a backend that is created from the copies."""
        downloads = self.plan.backend.downloads(self.plan.setup)
        if not downloads:
            return
        folders = await fetch_all(downloads)
        try:
            self.backend = self.plan.backend(self.plan.setup.with_folders(folders))
        except ConfigurationError as error:
            sources = ", ".join(str(model) for model in downloads.values())
            raise ConfigurationError(f"{sources}: {error.message}") from error
        self.adapters = self._model_adapters()
        if "model_id" in folders:
            self.configs.model_id_or_path = str(folders["model_id"])

    def _model_adapters(self) -> ModelAdapters:
        own = self.plan.directory / self.plan.setup.properties.adapters
        return ModelAdapters(self.backend, self.plan.code, self.plan.directory, own)

    async def stop(self) -> None:
        self.ready = False
        await self.backend.stop()

    async def health(self) -> None:
        """Raises ModelNotReady or BackendUnhealthy."""
        if not self.ready:
            raise ModelNotReady(f"model {self.name} is loading")
        await self.backend.health()

    @contextmanager
    def admit(self) -> Iterator[None]:
        """A place in the bounded queue; raises Overloaded before anything of the request was read."""
        if not self.ready:
            raise ModelNotReady(f"model {self.name} is not ready")
        if self._in_flight >= self.most_in_flight:
            raise Overloaded(f"model {self.name} has {self._in_flight} requests in its queue, the most it takes")
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    def name_asked(self, name: str | None) -> str:
        """Return the name that a request gave the model; if it gave none, the first that it is served as."""
        return name if name in self.names else self.names[0]

    def new_formatter(self, name: str) -> OutputFormatter:
        """Raises PluginError for a name that no plugin registers."""
        return self.plugins.formatters.get(name)()

    def new_chat_formatter(self, name: str, answer: ChatAnswer) -> OutputFormatter:
        """Return the formatter of chats by that name, or the one that writes any answer."""
        if name in self.plugins.chat_formatters:
            return self.plugins.chat_formatters.get(name)(answer)
        return self.new_formatter(name)

    def customize(self, call: Call) -> tuple[Call, Customization]:
        """The model's own code, or that of the adapter that the call names, and the call without the name."""
        call, adapters = take_adapters(call)
        for name in dict.fromkeys(adapters):
            if name is not None:
                check_adapter(name, self.plan.code, self.backend)
        adapter = common_adapter(adapters)
        loras = tuple(name if name in self.backend.adapters else None for name in adapters)
        formatters = self.plan.code.of(adapter)
        tokenizer = getattr(self.backend, "tokenizer", None)
        return call, Customization(
            formatters, tokenizer, self.configs, self.plan.options, call.request_id, adapter, loras, model=self.name
        )

    def drop_unknown(self, generation: Generation) -> Generation:
        """Drop the parameters that nobody knows: their names join `ignored`. Raises InvalidParameter."""
        strict = generation.strict or self.plan.options.strict_parameters
        dropped = [drop_unknown(request, self.backend, strict) for request in generation.requests]
        ignored = dict.fromkeys(name for _, names in dropped for name in names)
        requests = tuple(request for request, _ in dropped)
        return replace(generation, requests=requests, ignored=(*generation.ignored, *ignored))

    async def validate(self, requests: Sequence[GenerationRequest], request_id: str) -> list[ValidRequest]:
        """Raises InvalidParameter, or InvalidPayload for images. Long prompts are tokenized beside the event loop."""
        if any(request.images for request in requests):
            requests = [await with_images(request, self.backend) for request in requests]
        if sum(len(request.prompt) for request in requests) > LONG_PROMPT:
            async with self._tokenizing:
                return await asyncio.to_thread(self._validate, requests, request_id)
        return self._validate(requests, request_id)

    def _validate(self, requests: Sequence[GenerationRequest], request_id: str) -> list[ValidRequest]:
        if len(requests) == 1:
            return [validate(requests[0], self.backend, request_id)]
        return [validate(request, self.backend, f"{request_id}-{i}") for i, request in enumerate(requests)]

    def generate(self, requests: Sequence[ValidRequest], request_id: str = "") -> AsyncGenerator[GenerationStep, None]:
        """The steps of a call's prompts as they come. Closing it aborts them all; so does `running.abort`.

        Aborted so, each unfinished sequence ends with a step of its own.
        """
        steps = self._generate(requests, request_id)
        return logged(request_id, requests, steps) if self.plan.server.log_request_metric else steps

    async def _generate(
        self, requests: Sequence[ValidRequest], request_id: str
    ) -> AsyncGenerator[GenerationStep, None]:
        unfinished = sequences(requests)
        with self.running.call(request_id, self.plan.options.predict_timeout) as call:
            source = self._in_batch(call, lambda: self._generate_all(requests))
            async with aclosing(call.until_aborted(source)) as steps:
                async for step in steps:
                    if step.finish_reason is not None:
                        unfinished.discard((step.prompt_index, step.sequence_index))
                    yield step
        if call.aborted:
            for place, index in sorted(unfinished):
                yield GenerationStep([], "abort", index, prompt_index=place)

    def _generate_all(self, requests: Sequence[ValidRequest]) -> AsyncGenerator[GenerationStep, None]:
        streams = [self.backend.generate(request) for request in requests]
        return streams[0] if len(streams) == 1 else merge_prompts(streams)

    async def infer(
        self, inputs: Mapping[str, Tensor], request_id: str = ""
    ) -> AsyncGenerator[Mapping[str, Tensor], None]:
        """The responses of a backend that takes tensors. Closing it aborts the request; so does `running.abort`."""
        backend = self.backend
        assert isinstance(backend, TensorBackend), backend.name
        with self.running.call(request_id, self.plan.options.predict_timeout) as call:
            source = self._in_batch(call, lambda: backend.infer(next(self._inference_ids), inputs))
            async with aclosing(call.until_aborted(source)) as responses:
                async for response in responses:
                    yield response
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
    """As steps name them: the place of the prompt, and the sequence's own."""
    return {(place, i) for place, request in enumerate(requests) for i in range(request.parameters.num_sequences)}

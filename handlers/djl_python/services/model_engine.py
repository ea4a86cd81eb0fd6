"""A backend for a model's own function, in a thread of the function's process."""

import asyncio
import atexit
import logging
import queue
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from lmi_core.backend import Backend, BackendSetup
from lmi_core.configuration.configuration import Configuration, Setting
from lmi_core.configuration.properties import OPTION_PREFIX, RequestProperties, ServerProperties, keys_of
from lmi_core.errors import ConfigurationError, LmiError
from lmi_core.formatter import OutputFormatter, join_events
from lmi_core.generation.merge import merge
from lmi_core.generation.output import GenerationOutput, GenerationStep
from lmi_core.generation.request import GenerationRequest, ValidRequest
from lmi_core.payloads.tolerant_payload import field_names
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.serving.backend_choice import choose_backend
from lmi_core.serving.validation import validate
from lmi_core.tolerance import IgnoredParameters, drop_unknown

logger = logging.getLogger(__name__)

T = TypeVar("T")

SERVER_KEYS = ("batch_size", "max_batch_delay", "retry_threshold")  # the server alone reads its other keys
OF_THE_FUNCTION = ("entryPoint", "entry_point", "handler", "model_dir")  # keys that are not passed to an engine


class ModelEngine:
    """A backend, started from the properties that a model's function gets."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Choose and create the backend without starting it. Raise ConfigurationError for invalid properties."""
        self.plugins: Plugins = load_plugins()
        configuration = Configuration(_given(properties), ())
        self.options = configuration.load(RequestProperties)
        server = configuration.load(ServerProperties)
        backend, reason = choose_backend(self.options.rolling_batch, self.plugins.backends)
        logger.info("the model function generates with the %s backend (%s)", backend.name, reason)
        loaded = configuration.load(backend.properties_type)
        arguments = configuration.pass_through(backend.engine_arguments() if configuration.undeclared_options() else ())
        configuration.raise_errors()
        for warning in configuration.warnings:
            logger.warning("model function: %s", warning)
        self.directory = Path(str(properties.get("model_dir") or "."))
        timeout = self.options.model_loading_timeout
        setup = BackendSetup(self.directory, loaded, arguments, server.retry_threshold, timeout)
        self.backend: Backend[Any] = backend(setup)
        self._ignored = IgnoredParameters(self.directory.resolve().name)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="model-engine", daemon=True)

    def start(self) -> None:
        """Load the model. Raise ConfigurationError if it cannot be loaded."""
        self._thread.start()
        atexit.register(self.stop)
        self.run(self.backend.start())
        self.run(self.backend.finish_start())

    def stop(self) -> None:
        """End the engine; safe to call twice."""
        atexit.unregister(self.stop)
        if self._thread.is_alive():
            self.run(self.backend.stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine in the backend's event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    @property
    def pretrained(self) -> Any:
        """The tokenizer as a transformers object, if the backend uses one."""
        return getattr(self.backend.tokenizer, "pretrained", self.backend.tokenizer)

    def valid(self, request: GenerationRequest, request_id: str) -> ValidRequest:
        """Return the validated request, without unknown parameters unless `option.strict_parameters` refuses them.

        Raise InvalidParameter if the backend cannot serve it.
        """
        known, dropped = drop_unknown(request, self.backend, self.options.strict_parameters)
        self._ignored.report(dropped, lambda: field_names(self.backend.parameters_type))
        return validate(known, self.backend, request_id)

    def whole(self, requests: Sequence[ValidRequest]) -> GenerationOutput:
        """Generate to the end, and return the output. Raise an LmiError if a request fails."""
        output = GenerationOutput(requests)
        for step in self.steps(requests):
            output.add(step)
        return output

    def steps(self, requests: Sequence[ValidRequest]) -> Iterator[GenerationStep]:
        """Yield the steps; closing the iterator aborts the requests. Raise an LmiError if one fails."""
        arrived: queue.SimpleQueue[GenerationStep | BaseException | None] = queue.SimpleQueue()
        pump = asyncio.run_coroutine_threadsafe(self._pump(requests, arrived), self._loop)
        try:
            while (item := arrived.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            pump.cancel()

    async def write(self, request: ValidRequest, formatter: OutputFormatter) -> AsyncGenerator[bytes, None]:
        """Yield the formatter's bytes for each step, ending with any error, in the backend's event loop."""
        output = GenerationOutput([request])
        try:
            async with aclosing(self.backend.steps(request)) as steps:
                async for step in steps:
                    output.add(step)
                    yield join_events(formatter.format(output))
        except LmiError as error:
            yield join_events(formatter.error(error))
            raise

    def submit(self, coroutine: Coroutine[Any, Any, None]) -> Future[None]:
        """Run the coroutine in the backend's event loop without waiting."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _pump(
        self, requests: Sequence[ValidRequest], arrived: "queue.SimpleQueue[GenerationStep | BaseException | None]"
    ) -> None:
        try:
            streams = [self.backend.steps(request) for request in requests]
            async with aclosing(merge(streams, of_prompts=True)) as steps:
                async for step in steps:
                    arrived.put(step)
        except Exception as error:  # raised again where the steps are read
            arrived.put(error)
        else:
            arrived.put(None)


def _given(properties: Mapping[str, Any]) -> Iterator[Setting]:
    """Yield a function's properties, which have no prefix, as entries of `serving.properties`."""
    server_keys = {name for key in keys_of(ServerProperties) for name in (key.key, *key.aliases)}
    for name, value in properties.items():
        key = name if name in SERVER_KEYS else OPTION_PREFIX + name
        if value in (None, "") or name in OF_THE_FUNCTION or (name in server_keys and name not in SERVER_KEYS):
            continue
        yield Setting(key, _text(name, value), f"the property {name}")


def _text(name: str, value: Any) -> str:
    text = str(value).strip()
    return "true" if name == "enable_streaming" and text.lower() == "huggingface" else text


def model_files(engine: ModelEngine) -> str:
    """Return the folder or hub id from which transformers can load the model."""
    model_id = engine.backend.setup.properties.model_id
    if model_id is None:
        return str(engine.directory)
    inside = engine.directory / model_id
    if "://" in model_id:
        raise ConfigurationError(f"option.model_id={model_id} is a URL, which transformers cannot load")
    return str(inside) if inside.is_dir() else str(model_id)

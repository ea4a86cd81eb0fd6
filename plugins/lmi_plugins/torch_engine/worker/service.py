"""The worker's side of the torch backend: messages in, engine steps out."""

import logging
from collections.abc import Callable
from time import monotonic

from msgspec.structs import replace

from lmi_core.errors import InvalidParameter, LmiError
from lmi_core.generation.output import GenerationStep
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.workers.channel import Channel, SharedChannel
from lmi_core.workers.messages import ALIVE, LoadFailed, Ping
from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine
from lmi_plugins.torch_engine.embeddings.loading import embedding_engine_of, load_embedding_engine
from lmi_plugins.torch_engine.embeddings.task import choose_task
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.protocol import (
    Abort,
    Embed,
    Failure,
    Load,
    LoadAdapter,
    Loaded,
    PinAdapter,
    Steps,
    Submit,
    UnloadAdapter,
    decode_to_worker,
    failure,
)
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.worker.adapter_loader import AdapterLoader
from lmi_plugins.torch_engine.worker.sharing import (
    figures_of_each,
    greet,
    send_answer,
    send_begun,
    send_failure,
    send_figures,
    send_loaded,
    send_results,
    unique,
)

logger = logging.getLogger(__name__)

INTERVAL = 0.25  # seconds between reports, except for the one when the engine runs out of work


class FiguresReport:
    """A report of changed figures, rare enough to cost nothing per step."""

    def __init__(self, engine: Engine, channel: Channel) -> None:
        self._engine = engine
        self._channel = channel
        self._sent: dict[str, EngineFigures] = {}
        self._next = 0.0
        self._begun: set[str] = set()  # running requests

    def report(self) -> None:
        """Send the requests that have begun, and the figures if it is time."""
        if isinstance(self._channel, SharedChannel):
            running = set(self._engine.scheduler.running_ids)
            send_begun(running - self._begun, self._channel)
            self._begun = running
        now = monotonic()
        if now < self._next and self._engine.has_work:
            return
        self._next = now + INTERVAL
        before = self._sent
        ids = self._engine.scheduler.running_ids
        self._sent = figures_of_each(read_figures(self._engine), ids, self._channel)
        for server, figures in self._sent.items():
            if figures != before.get(server):
                send_figures(server, figures, self._channel)


class Service:
    """A loaded model, which generates texts, makes vectors, or both, for the servers of a channel."""

    def __init__(self, channel: Channel, engine: Engine | None, embeddings: EmbeddingEngine | None) -> None:
        self._channel = channel
        self._engine = engine
        self._embeddings = embeddings
        self._loader = AdapterLoader(engine)
        self._figures = None if engine is None else FiguresReport(engine, channel)

    def serve_once(self) -> None:
        """Process the available messages, waiting for one only if there is nothing to compute, and step once."""
        if self._figures is not None:
            self._figures.report()
        idle = not any(each is not None and each.has_work for each in (self._engine, self._loader, self._embeddings))
        failures: list[Failure] = []
        for message in self._channel.burst() if idle else iter(self._channel.pending, None):
            failures += self._handle(message)
        if self._loader.has_work:
            self._answer_adapter_calls()
        self._generate(failures)
        if self._embeddings is not None and (made := self._embeddings.step_beside(self._engine)).num_tokens:
            failures = [failure(request_id, error) for request_id, error in made.failures.items()]
            send_results(Steps([], failures, made.vectors), self._channel, self._abort)

    def _generate(self, failures: list[Failure]) -> None:
        """Run a step of generation, if there is work, and send its results with these failures."""
        engine = self._engine
        results = engine.step() if engine is not None and engine.has_work else []
        steps = [(request_id, result) for request_id, result in results if isinstance(result, GenerationStep)]
        failures += [failure(request_id, result) for request_id, result in results if isinstance(result, LmiError)]
        if steps or failures:
            unfinished = () if engine is None else engine.requests.groups
            send_results(Steps(steps, failures), self._channel, self._abort, unfinished)

    def _answer_adapter_calls(self) -> None:
        """Send the answers of finished calls; wait for them while nothing runs."""
        if self._engine is not None and not self._engine.has_work:
            self._loader.wait()
        for answer in self._loader.answers():
            send_answer(answer, self._channel)

    def _abort(self, request_id: str) -> None:
        for engine in (self._engine, self._embeddings):
            if engine is not None:
                engine.abort(request_id)

    def _handle(self, message: bytes) -> list[Failure]:
        """Process a message; return the failure of a request that is refused."""
        channel = self._channel
        match decode_to_worker(message):
            case Submit(request):
                request = replace(request, request_id=unique(request.request_id, channel))
                try:
                    if self._engine is None:
                        raise InvalidParameter("the model makes embeddings and generates no text")
                    self._engine.add(request)
                except LmiError as error:
                    return [failure(request.request_id, error)]
            case Embed(job) if self._embeddings is not None:
                self._embeddings.add(replace(job, request_id=unique(job.request_id, channel)))
            case Abort(request_id):
                self._abort(unique(request_id, channel))
            case Ping():
                channel.send(ALIVE)
            case LoadAdapter() | PinAdapter() | UnloadAdapter() as call:
                self._loader.begin(replace(call, call_id=unique(call.call_id, channel)))
            case Load():
                greet(channel)
        return []


def read_figures(engine: Engine) -> EngineFigures:
    """Return the engine's figures, counted since its worker started."""
    prefixes = engine.prefix_cache
    return EngineFigures(
        running=len(engine.scheduler.running_ids),
        waiting=engine.scheduler.num_waiting + len(engine.guides.waiting),
        cache_usage=1 - engine.pool.free / engine.pool.size,
        looked_up_tokens=None if prefixes is None else prefixes.prompt_tokens,
        cached_tokens=None if prefixes is None else prefixes.cached_tokens,
    )


def _unheard(what: str) -> None:
    """Report to nobody."""


def load_model(
    options: EngineOptions, channel: Channel, report: Callable[[str], None] = _unheard
) -> Callable[[], None] | None:
    """Load the model, report the outcome, and return the function that serves it once; None if it cannot be loaded."""
    try:
        found = load_generation if choose_task(options) == "generate" else load_embeddings
        loaded, service = found(options, channel, report)
    except Exception as error:  # not enough device memory, an error in the model's own code, and others
        logger.debug("the model could not be loaded", exc_info=True)
        send_failure(LoadFailed.because_of(error, options.model), channel)
        return None
    send_loaded(loaded, channel)
    return service.serve_once


def load_generation(options: EngineOptions, channel: Channel, report: Callable[[str], None]) -> tuple[Loaded, Service]:
    """Load a generating model. Raise ConfigurationError if that fails."""
    logger.info("loading %s", options.model)
    report("loading the tokenizer")
    tokenizer = HuggingFaceTokenizer.load(options.model, options.revision, options.trust_remote_code)
    report("loading the model")
    engine = Engine(options, tokenizer)
    engine.runner.progress = channel.beat
    embeddings = embedding_engine_of(engine, options)
    known = None if embeddings is None else embeddings.model
    store, limits = engine.runner.adapters, engine.limits
    names = [] if store is None else store.names
    return Loaded(limits.max_length, names, True, known, limits.vocabulary), Service(channel, engine, embeddings)


def load_embeddings(options: EngineOptions, channel: Channel, report: Callable[[str], None]) -> tuple[Loaded, Service]:
    """Load a model that embeds or scores. Raise ConfigurationError if that fails."""
    logger.info("loading %s, which generates no text", options.model)
    if options.adapters:
        logger.warning("The adapters %s are not loaded: the model generates no text", ", ".join(options.adapters))
    report("loading the model")
    engine = load_embedding_engine(options)
    return Loaded(engine.model.max_length, [], False, engine.model), Service(channel, None, engine)

"""The worker's side of the torch backend: messages in, engine steps out."""

import logging
from collections.abc import Callable
from functools import partial
from time import monotonic

from msgspec.structs import replace

from lmi_core.errors import LmiError
from lmi_core.generation.output import GenerationStep
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.workers.channel import Channel, SharedChannel
from lmi_core.workers.messages import ALIVE, LoadFailed, Ping
from lmi_plugins.torch_engine.embeddings.embedding_turns import EmbeddingTurns
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
from lmi_plugins.torch_engine.worker import embedding_service
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
            running = set(self._engine.parts.scheduler.running_ids)
            send_begun(running - self._begun, self._channel)
            self._begun = running
        now = monotonic()
        if now < self._next and self._engine.has_work:
            return
        self._next = now + INTERVAL
        before = self._sent
        ids = self._engine.parts.scheduler.running_ids
        self._sent = figures_of_each(read_figures(self._engine), ids, self._channel)
        for server, figures in self._sent.items():
            if figures != before.get(server):
                send_figures(server, figures, self._channel)


def _unheard(what: str) -> None:
    """Report to nobody."""


def load_model(
    options: EngineOptions, channel: Channel, report: Callable[[str], None] = _unheard
) -> Callable[[], None] | None:
    """Load the model, report the outcome, and return the function that serves it once; None if it cannot be loaded."""
    try:
        serve = load_generation if choose_task(options) == "generate" else load_embeddings
        return serve(options, channel, report)
    except Exception as error:  # not enough device memory, an error in the model's own code, and others
        logger.debug("the model could not be loaded", exc_info=True)
        send_failure(LoadFailed.because_of(error, options.model), channel)
    return None


def load_generation(options: EngineOptions, channel: Channel, report: Callable[[str], None]) -> Callable[[], None]:
    """Load a generating model, report that, and return the function that serves it once.

    Raise ConfigurationError if that fails.
    """
    engine = load(options, report)
    engine.parts.runner.progress = channel.beat
    embeddings = embedding_engine_of(engine.parts, options)
    turns = None if embeddings is None else EmbeddingTurns(embeddings, engine)
    known = None if embeddings is None else embeddings.model
    store, limits = engine.parts.adapters, engine.limits
    names = [] if store is None else store.names
    send_loaded(Loaded(limits.max_length, names, True, known, limits.vocabulary), channel)
    serve = partial(serve_once, engine, AdapterLoader(engine), channel, turns)
    figures = FiguresReport(engine, channel)

    def serve_and_report() -> None:
        serve()
        figures.report()

    figures.report()
    return serve_and_report


def load_embeddings(options: EngineOptions, channel: Channel, report: Callable[[str], None]) -> Callable[[], None]:
    """Load a model that embeds or scores, report that, and return the function that serves it once.

    Raise ConfigurationError if that fails.
    """
    logger.info("loading %s, which generates no text", options.model)
    if options.adapters:
        logger.warning("The adapters %s are not loaded: the model generates no text", ", ".join(options.adapters))
    report("loading the model")
    engine = load_embedding_engine(options)
    send_loaded(Loaded(engine.model.max_length, [], False, engine.model), channel)
    return partial(embedding_service.serve_once, engine, channel)


def load(options: EngineOptions, report: Callable[[str], None] = _unheard) -> Engine:
    """Return an engine for the options; raise ConfigurationError if it cannot be loaded."""
    logger.info("loading %s", options.model)
    report("loading the tokenizer")
    tokenizer = HuggingFaceTokenizer.load(options.model, options.revision, options.trust_remote_code)
    report("loading the model")
    return Engine.load(options, tokenizer)


def serve_once(engine: Engine, loader: AdapterLoader, channel: Channel, turns: EmbeddingTurns | None = None) -> None:
    """Process the available messages, waiting for one only if there is nothing to compute, and step once."""
    idle = not (engine.has_work or loader.busy or (turns is not None and turns.has_work))
    refused: list[Failure] = []
    for message in channel.burst() if idle else iter(channel.pending, None):
        refused += handle(engine, loader, message, channel, turns)
    if loader.busy:
        answer_adapter_calls(engine, loader, channel)
    results = engine.step() if engine.has_work else []
    steps = [(request_id, result) for request_id, result in results if isinstance(result, GenerationStep)]
    failed = [failure(request_id, result) for request_id, result in results if isinstance(result, LmiError)]
    if steps or failed or refused:
        send_results(Steps(steps, refused + failed), channel, engine.abort, engine.parts.requests.groups)
    if turns is not None and (made := turns.step()).num_tokens:
        failures = [failure(request_id, error) for request_id, error in made.failures.items()]
        send_results(Steps([], failures, made.vectors), channel, turns.abort)


def answer_adapter_calls(engine: Engine, loader: AdapterLoader, channel: Channel) -> None:
    """Send the answers of finished calls; wait for them while nothing runs."""
    if not engine.has_work:
        loader.wait()
    for answer in loader.answers():
        send_answer(answer, channel)


def handle(
    engine: Engine, loader: AdapterLoader, message: bytes, channel: Channel, turns: EmbeddingTurns | None = None
) -> list[Failure]:
    """Process a message; return the failure of a request that the engine refuses."""
    match decode_to_worker(message):
        case Submit(request):
            request = replace(request, request_id=unique(request.request_id, channel))
            try:
                engine.add(request)
            except LmiError as error:
                return [failure(request.request_id, error)]
        case Embed(job) if turns is not None:
            turns.add(replace(job, request_id=unique(job.request_id, channel)))
        case Abort(request_id):
            engine.abort(request_id := unique(request_id, channel))
            if turns is not None:
                turns.abort(request_id)
        case Ping():
            channel.send(ALIVE)
        case LoadAdapter() as call:
            loader.load(replace(call, call_id=unique(call.call_id, channel)))
        case PinAdapter() as call:
            loader.pin(replace(call, call_id=unique(call.call_id, channel)))
        case UnloadAdapter() as call:
            loader.unload(replace(call, call_id=unique(call.call_id, channel)))
        case Load():
            greet(channel)
    return []


def read_figures(engine: Engine) -> EngineFigures:
    """Return the engine's figures, counted since its worker started."""
    parts = engine.parts
    prefixes = parts.prefix_cache
    return EngineFigures(
        running=parts.scheduler.num_running,
        waiting=parts.scheduler.num_waiting + len(parts.guides.waiting),
        cache_usage=1 - parts.pool.free / parts.pool.size,
        looked_up_tokens=None if prefixes is None else prefixes.prompt_tokens,
        cached_tokens=None if prefixes is None else prefixes.cached_tokens,
    )

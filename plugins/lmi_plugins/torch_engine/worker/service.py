"""The worker's side of the torch backend: messages in, engine steps out."""

import logging
import time
from collections.abc import Iterator

from lmi_core.engines.worker import Channel
from lmi_core.errors import ConfigurationError, LmiError
from lmi_core.generation import GenerationStep
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.adapters.loader import AdapterLoader
from lmi_plugins.torch_engine.engine import Engine
from lmi_plugins.torch_engine.worker.messages import EngineOptions
from lmi_plugins.torch_engine.worker.protocol import (
    Abort,
    Failure,
    Load,
    LoadAdapter,
    Loaded,
    LoadFailed,
    Started,
    Steps,
    Submit,
    UnloadAdapter,
    decode_to_worker,
    encode,
    failure,
)

logger = logging.getLogger(__name__)

# Seconds: between two messages of a burst at most, and from its first to its last, while nothing else waits.
BURST_GAP, MAX_BURST = 0.0003, 0.003


def run(channel: Channel) -> None:
    """Load what the first message says, then serve for ever: the worker's `target`."""
    channel.send(encode(Started()))
    first = decode_to_worker(channel.receive())
    assert isinstance(first, Load), first
    try:
        engine = load(first.options)
    except ConfigurationError as error:
        channel.send(encode(LoadFailed(error.message)))
        return
    except Exception as error:  # no memory on the device, a model's own code, ...
        logger.debug("the model could not be loaded", exc_info=True)
        channel.send(encode(LoadFailed(f"{first.options.model}: the model cannot be loaded: {reason(error)}")))
        return
    loader = AdapterLoader(engine)
    channel.send(encode(Loaded(engine.limits.max_length, list(first.options.adapters))))
    while True:
        serve_once(engine, loader, channel)


def reason(error: Exception) -> str:
    """Return an error's type and first line."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def load(options: EngineOptions) -> Engine:
    """Return an engine for the options; raise ConfigurationError if it cannot be loaded."""
    logger.info("loading %s", options.model)
    tokenizer = HuggingFaceTokenizer.load(options.model, options.revision, options.trust_remote_code)
    return Engine.load(options, tokenizer)


def serve_once(engine: Engine, loader: AdapterLoader, channel: Channel) -> None:
    """Take the messages that are there, waiting for one only when there is nothing to compute, and step once."""
    idle = not (engine.has_work or loader.busy)
    refused: list[Failure] = []
    for message in burst(channel) if idle else iter(channel.pending, None):
        refused += handle(engine, loader, message)
    if loader.busy:
        answer_adapter_calls(engine, loader, channel)
    results = engine.step() if engine.has_work else []
    steps = [(request_id, result) for request_id, result in results if isinstance(result, GenerationStep)]
    failed = [failure(request_id, result) for request_id, result in results if isinstance(result, LmiError)]
    if steps or failed or refused:
        channel.send(encode(Steps(steps, refused + failed)))


def burst(channel: Channel) -> Iterator[bytes]:
    """Yield the next message, and those right behind it, so that what was sent together begins together."""
    message: bytes | None = channel.receive()
    last_look = time.monotonic() + MAX_BURST
    while message is not None:
        yield message
        message = channel.pending()
        if message is None and time.monotonic() < last_look:
            time.sleep(BURST_GAP)
            message = channel.pending()


def answer_adapter_calls(engine: Engine, loader: AdapterLoader, channel: Channel) -> None:
    """Send the answers of the calls that are done, which are waited for while nothing runs."""
    if not engine.has_work:
        loader.wait()
    for answer in loader.answers():
        channel.send(encode(answer))


def handle(engine: Engine, loader: AdapterLoader, message: bytes) -> list[Failure]:
    """Do what a message says; return the failure of a request that the engine refuses."""
    match decode_to_worker(message):
        case Submit(request):
            try:
                engine.add(request)
            except LmiError as error:
                return [failure(request.request_id, error)]
        case Abort(request_id):
            engine.abort(request_id)
        case LoadAdapter() as call:
            loader.load(call)
        case UnloadAdapter() as call:
            loader.unload(call)
    return []

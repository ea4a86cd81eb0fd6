"""The worker's side of a model that makes vectors and generates nothing."""

from lmi_core.errors import InvalidAdapter, InvalidParameter
from lmi_core.workers.messages import ALIVE, Ping, encode
from lmi_core.workers.worker import Channel
from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine
from lmi_plugins.torch_engine.messages.protocol import (
    Abort,
    AdapterAnswer,
    Embed,
    Failure,
    LoadAdapter,
    Steps,
    Submit,
    UnloadAdapter,
    decode_to_worker,
    failure,
)
from lmi_plugins.torch_engine.worker.burst import burst


def serve_once(engine: EmbeddingEngine, channel: Channel) -> None:
    """Process the available messages, waiting for one only if there is nothing to compute, and step once."""
    refused: list[Failure] = []
    for message in iter(channel.pending, None) if engine.has_work else burst(channel):
        refused += handle(engine, message, channel)
    if refused:
        channel.send(encode(Steps([], refused)))
    if engine.has_work:
        results = engine.step()
        failures = [failure(request_id, error) for request_id, error in results.failures.items()]
        channel.send(encode(Steps([], failures, results.vectors)))


def handle(engine: EmbeddingEngine, message: bytes, channel: Channel) -> list[Failure]:
    """Process a message; return the failure of a request that needs a generating model."""
    match decode_to_worker(message):
        case Embed(job):
            engine.add(job)
        case Abort(request_id):
            engine.abort(request_id)
        case Ping():
            channel.send(ALIVE)
        case Submit(request):
            return [failure(request.request_id, InvalidParameter("the model makes embeddings and generates no text"))]
        case LoadAdapter(call_id) | UnloadAdapter(call_id):
            error = InvalidAdapter("embeddings are made with the model alone: it takes no adapters")
            channel.send(encode(AdapterAnswer(call_id, [], failure(call_id, error))))
    return []

"""The worker's side of a model that makes vectors and generates nothing."""

from msgspec.structs import replace

from lmi_core.errors import InvalidAdapter, InvalidParameter
from lmi_core.workers.channel import Channel
from lmi_core.workers.messages import ALIVE, Ping
from lmi_plugins.torch_engine.embeddings.engine import EmbeddingEngine
from lmi_plugins.torch_engine.messages.protocol import (
    Abort,
    AdapterAnswer,
    Embed,
    Failure,
    Load,
    LoadAdapter,
    Steps,
    Submit,
    UnloadAdapter,
    decode_to_worker,
    failure,
)
from lmi_plugins.torch_engine.worker.sharing import greet, send_answer, send_results, unique


def serve_once(engine: EmbeddingEngine, channel: Channel) -> None:
    """Process the available messages, waiting for one only if there is nothing to compute, and step once."""
    refused: list[Failure] = []
    for message in iter(channel.pending, None) if engine.has_work else channel.burst():
        refused += handle(engine, message, channel)
    if refused:
        send_results(Steps([], refused), channel, engine.abort)
    if engine.has_work:
        results = engine.step()
        failures = [failure(request_id, error) for request_id, error in results.failures.items()]
        send_results(Steps([], failures, results.vectors), channel, engine.abort)


def handle(engine: EmbeddingEngine, message: bytes, channel: Channel) -> list[Failure]:
    """Process a message; return the failure of a request that needs a generating model."""
    match decode_to_worker(message):
        case Embed(job):
            engine.add(replace(job, request_id=unique(job.request_id, channel)))
        case Abort(request_id):
            engine.abort(unique(request_id, channel))
        case Ping():
            channel.send(ALIVE)
        case Submit(request):
            error = InvalidParameter("the model makes embeddings and generates no text")
            return [failure(unique(request.request_id, channel), error)]
        case LoadAdapter(call_id) | UnloadAdapter(call_id):
            refusal = InvalidAdapter("the model makes embeddings without adapters")
            send_answer(AdapterAnswer(unique(call_id, channel), [], failure(call_id, refusal)), channel)
        case Load():
            greet(channel)
    return []

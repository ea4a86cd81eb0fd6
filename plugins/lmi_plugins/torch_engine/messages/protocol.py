"""The messages between the torch backend and its worker."""

import msgspec

from lmi_core.embedding_backend import EmbeddingModel
from lmi_core.errors import (
    AdapterNotFound,
    ContextLengthExceeded,
    GenerationFailed,
    InvalidAdapter,
    InvalidParameter,
    LmiError,
    Overloaded,
)
from lmi_core.generation.output import GenerationStep
from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers.messages import Alive, LoadFailed, Ping, Progress, Started
from lmi_core.workers.trial_turn import Turn
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingJob
from lmi_plugins.torch_engine.messages.requests import AdapterTensors, EngineOptions, EngineRequest
from lmi_plugins.torch_engine.messages.results import StepFailed


class Load(msgspec.Struct, tag=True):
    """The first message to the worker: the model to load."""

    options: EngineOptions


class Submit(msgspec.Struct, tag=True):
    """A request to start."""

    request: EngineRequest


class Abort(msgspec.Struct, tag=True):
    """A request to drop."""

    request_id: str


class Embed(msgspec.Struct, tag=True):
    """An embedding request to start."""

    job: EmbeddingJob


class LoadAdapter(msgspec.Struct, tag=True):
    """A call that is answered when the adapter is loaded."""

    call_id: str
    name: str
    source: str | AdapterTensors  # str: a directory


class UnloadAdapter(msgspec.Struct, tag=True):
    """A call that is answered when the adapter is unloaded."""

    call_id: str
    name: str


class PinAdapter(msgspec.Struct, tag=True):
    """A call that is answered when the adapter is pinned or unpinned."""

    call_id: str
    name: str
    pinned: bool


class Loaded(msgspec.Struct, tag=True):
    """The end of a start: the model accepts requests."""

    max_length: int
    adapters: list[str]
    generates: bool = True
    embedding: EmbeddingModel | None = None  # None: the model makes no vectors
    vocabulary: int = 0  # the number of token ids, of a model that generates


class Failure(msgspec.Struct, array_like=True):
    """The end of one request that the engine could not finish."""

    request_id: str
    kind: str
    message: str

    @property
    def of_step(self) -> bool:
        """Whether the engine's step failed, possibly because of another request."""
        return self.kind == StepFailed.kind

    @property
    def error(self) -> LmiError:
        return _ERRORS.get(self.kind, GenerationFailed)(self.message)


def failure(request_id: str, error: LmiError) -> Failure:
    return Failure(request_id, error.kind, error.message)


# Errors caused by a request; all others are the engine's.
_ERRORS: dict[str, type[LmiError]] = {
    each.kind: each for each in (InvalidParameter, ContextLengthExceeded, AdapterNotFound, InvalidAdapter, Overloaded)
}


class AdapterAnswer(msgspec.Struct, tag=True):
    """The answer to a call that loads, pins or unloads an adapter."""

    call_id: str
    names: list[str]  # all adapters that are now available
    failure: Failure | None


class Steps(msgspec.Struct, tag=True):
    """The results of one step of the engine."""

    steps: list[tuple[str, GenerationStep]]
    failures: list[Failure]
    vectors: list[tuple[str, int, bytes]] = []  # by request, with the index of the input


class Admitted(msgspec.Struct, tag=True):
    """The engine has started these requests, which had waited in it for other servers' requests."""

    request_ids: list[str]


class Busy(msgspec.Struct, tag=True):
    """The engine has produced results for another server that shares it."""


class Figures(msgspec.Struct, tag=True):
    """The engine's own figures, sent a few times a second while they change."""

    figures: EngineFigures


ToWorker = Load | Submit | Embed | Abort | Ping | LoadAdapter | PinAdapter | UnloadAdapter
FromWorker = Started | Progress | Loaded | LoadFailed | Steps | Admitted | Busy | Figures | Alive | AdapterAnswer | Turn

decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode

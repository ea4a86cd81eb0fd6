"""The messages between the torch backend and its worker."""

import msgspec

from lmi_core.embeddings.backend import EmbeddingModel
from lmi_core.errors import (
    AdapterNotFound,
    ContextLengthExceeded,
    GenerationFailed,
    InvalidAdapter,
    InvalidParameter,
    LmiError,
)
from lmi_core.generation import GenerationStep
from lmi_plugins.torch_engine.worker.embedding_messages import EmbeddingJob
from lmi_plugins.torch_engine.worker.messages import AdapterTensors, EngineOptions, EngineRequest


class Load(msgspec.Struct, tag=True):
    """The first message to the worker: what to load."""

    options: EngineOptions


class Submit(msgspec.Struct, tag=True):
    """A request to begin."""

    request: EngineRequest


class Abort(msgspec.Struct, tag=True):
    """A request to drop."""

    request_id: str


class Embed(msgspec.Struct, tag=True):
    """A request for vectors to begin."""

    job: EmbeddingJob


class LoadAdapter(msgspec.Struct, tag=True):
    """A call that is answered once the adapter is loaded."""

    call_id: str
    name: str
    source: str | AdapterTensors  # str: a directory


class UnloadAdapter(msgspec.Struct, tag=True):
    """A call that is answered once the adapter is forgotten."""

    call_id: str
    name: str


class Started(msgspec.Struct, tag=True):
    """The first message of the worker: its process runs and reads."""


class Loaded(msgspec.Struct, tag=True):
    """The end of a start: the model takes requests."""

    max_length: int
    adapters: list[str]
    generates: bool = True
    embedding: EmbeddingModel | None = None  # None: it makes no vectors


class LoadFailed(msgspec.Struct, tag=True):
    """The end of a worker that could not load its model, by a fault of the model's directory."""

    message: str


class Failure(msgspec.Struct, array_like=True):
    """The end of one request that the engine could not finish."""

    request_id: str
    kind: str
    message: str

    @property
    def error(self) -> LmiError:
        return _ERRORS.get(self.kind, GenerationFailed)(self.message)


def failure(request_id: str, error: LmiError) -> Failure:
    return Failure(request_id, error.kind, error.message)


# Those that a request causes; any other is the engine's.
_ERRORS: dict[str, type[LmiError]] = {
    each.kind: each for each in (InvalidParameter, ContextLengthExceeded, AdapterNotFound, InvalidAdapter)
}


class AdapterAnswer(msgspec.Struct, tag=True):
    """The answer to a call that loads or unloads an adapter."""

    call_id: str
    names: list[str]  # of all adapters that there are now
    failure: Failure | None


class Steps(msgspec.Struct, tag=True):
    """What requests get from one step of the engine."""

    steps: list[tuple[str, GenerationStep]]
    failures: list[Failure]
    vectors: list[tuple[str, int, bytes]] = []  # by request, with the index of the input


ToWorker = Load | Submit | Embed | Abort | LoadAdapter | UnloadAdapter
FromWorker = Started | Loaded | LoadFailed | Steps | AdapterAnswer

encode = msgspec.msgpack.Encoder().encode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode

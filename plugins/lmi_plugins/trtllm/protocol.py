"""The messages between the trtllm backend and its worker."""

import msgspec

from lmi_core.generation.tensors import Tensor
from lmi_core.workers.messages import Alive, LoadFailed, Ping, Started
from lmi_plugins.torch_engine.messages.protocol import Failure
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.trtllm.requests.limits import RequestLimits


class Load(msgspec.Struct, tag=True):
    """The first message to the worker: the model to load."""

    options: EngineOptions
    limits: RequestLimits


class Infer(msgspec.Struct, tag=True):
    """A request to start."""

    request_id: int
    tensors: dict[str, Tensor]
    # Parameters of text requests for which TensorRT-LLM has no tensor.
    bad_texts: list[str] = []
    logit_bias: dict[int, float] = {}
    num_top_tokens: int = 0


class Stop(msgspec.Struct, tag=True):
    """A request to stop."""

    request_id: int


class Loaded(msgspec.Struct, tag=True):
    """The end of a start: the manager accepts requests."""

    max_length: int  # of a prompt and its output
    vocabulary: int
    eos_token_ids: list[int]  # of the model


class ResponseMessage(msgspec.Struct, array_like=True):
    """A response to one request, or its failure."""

    request_id: int
    tensors: dict[str, Tensor]
    is_final: bool
    failure: Failure | None = None


class Responses(msgspec.Struct, tag=True):
    """The responses of one iteration."""

    responses: list[ResponseMessage]


ToWorker = Load | Infer | Stop | Ping
FromWorker = Started | Loaded | LoadFailed | Responses | Alive

decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode

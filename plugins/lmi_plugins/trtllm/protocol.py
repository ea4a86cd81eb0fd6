"""What the trtllm backend and its worker say to each other."""

import msgspec

from lmi_core.tensors import Tensor
from lmi_plugins.torch_engine.worker.messages import EngineOptions
from lmi_plugins.torch_engine.worker.protocol import Failure
from lmi_plugins.trtllm.requests.limits import RequestLimits


class Load(msgspec.Struct, tag=True):
    """To the worker, first and once."""

    options: EngineOptions
    limits: RequestLimits


class Infer(msgspec.Struct, tag=True):
    request_id: int
    tensors: dict[str, Tensor]
    bad_texts: list[str] = []  # of requests for text


class Stop(msgspec.Struct, tag=True):
    request_id: int


class Started(msgspec.Struct, tag=True):
    """From the worker: its process runs and reads."""


class Loaded(msgspec.Struct, tag=True):
    max_length: int  # of a prompt and what is generated from it
    vocabulary: int
    end_ids: list[int]  # the model's own end-of-sequence tokens


class LoadFailed(msgspec.Struct, tag=True):
    """The model directory is at fault; the worker ends."""

    message: str


class ResponseMessage(msgspec.Struct, array_like=True):
    request_id: int
    tensors: dict[str, Tensor]
    is_final: bool
    failure: Failure | None = None


class Responses(msgspec.Struct, tag=True):
    """All that one iteration gave."""

    responses: list[ResponseMessage]


ToWorker = Load | Infer | Stop
FromWorker = Started | Loaded | LoadFailed | Responses

encode = msgspec.msgpack.Encoder().encode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode

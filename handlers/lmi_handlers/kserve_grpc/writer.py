"""Writer of tensors as gRPC's messages."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import orjson

from lmi_core.calls.answer import IGNORED_HEADER
from lmi_core.errors import LmiError
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import Tensor
from lmi_core.inference import ResponseWriter
from lmi_core.served_model import ServedModel
from lmi_core.tolerance import ignored_header
from lmi_handlers.kserve_grpc.definitions import service_pb2
from lmi_handlers.triton.formatters import TritonFormatter, TritonStreamFormatter
from lmi_handlers.triton.generate import version_of
from lmi_handlers.triton.infer_payload import InferRequest
from lmi_handlers.triton.text import TextInferFormatter

FINAL_RESPONSE = "triton_final_response"  # the parameter that marks a request's last streamed response

JSON, JSON_LINES = "application/json", "application/jsonlines"


class GrpcFormatter(TextInferFormatter):
    """An output formatter that writes tensors, and the same outputs as JSON for the model's own formatter."""

    name: ClassVar[str] = "kserve_grpc"

    def __init__(self, inner: TritonFormatter, writer: ResponseWriter) -> None:
        super().__init__(inner, writer)
        self.streams = isinstance(inner, TritonStreamFormatter)
        self.content_type = JSON_LINES if self.streams else JSON

    def format(self, output: GenerationOutput) -> bytes:
        answer = self.inner.latest(output)
        if answer is None:
            return b""
        return orjson.dumps(answer) + (b"\n" if self.streams else b"")


class MessageWriter(ResponseWriter):
    """Writer of the responses to one request, each a `ModelInferResponse`."""

    streams: ClassVar[bool] = False
    content_type = "application/grpc"

    def __init__(self, model: ServedModel, request: InferRequest) -> None:
        self._head = {"model_name": model.name, "model_version": version_of(model), "id": request.id or ""}
        self._request = request

    def message(self, tensors: Mapping[str, Tensor], ignored: Iterable[str] = (), final: bool | None = None) -> Any:
        """Return a response with the tensors that the request selects; `final` is None if none follow."""
        response = service_pb2.ModelInferResponse(**self._head)
        for name, (tensor, _) in self._request.selected(tensors).items():
            response.outputs.add(name=name, datatype=tensor.dtype, shape=tensor.shape)
            response.raw_output_contents.append(tensor.data)
        if final is not None:
            response.parameters[FINAL_RESPONSE].bool_param = final
        if ignored:
            response.parameters[IGNORED_HEADER].string_param = ignored_header(ignored)
        return response

    def write(self, response: Mapping[str, Tensor]) -> bytes:
        data: bytes = self.message(response).SerializeToString()
        return data

    def error(self, error: LmiError) -> bytes:
        data: bytes = service_pb2.ModelStreamInferResponse(error_message=error.message).SerializeToString()
        return data


class StreamedMessageWriter(MessageWriter):
    """Writer of the responses to a request that may have several."""

    streams: ClassVar[bool] = True

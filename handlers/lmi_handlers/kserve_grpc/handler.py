"""The handler of infer requests over gRPC, derived from that of the HTTP dialect, and its writer of messages."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import orjson
from tritonclient.grpc import service_pb2

from lmi_core.calls.answer import IGNORED_HEADER
from lmi_core.errors import InvalidPayload, LmiError, ModelNotFound
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import Tensor
from lmi_core.handler import Call, Generation, Inference
from lmi_core.inference import ResponseWriter
from lmi_core.served_model import ServedModel
from lmi_core.tolerance import ignored_header
from lmi_handlers.triton.formatters import TritonFormatter, TritonStreamFormatter
from lmi_handlers.triton.generate import STREAMING, version_of
from lmi_handlers.triton.handler import TritonHandler
from lmi_handlers.triton.infer import TextInferFormatter, parse_infer
from lmi_handlers.triton.infer_payload import InferRequest
from lmi_handlers.triton.metadata import check_version

FINAL_RESPONSE = "triton_final_response"  # the parameter that marks a request's last streamed response

JSON, JSON_LINES = "application/json", "application/jsonlines"
STREAMS = ("stream", STREAMING)  # tensors that request several responses
TRUE = b"\x01"


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
        """Return a response with the tensors that the request selects; `final` is None if it is the only response."""
        response = service_pb2.ModelInferResponse(**self._head)
        for name, (tensor, _) in self._request.select(tensors).items():
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


class GrpcHandler(TritonHandler):
    """A reader of one infer request; its attributes are set when the request is parsed."""

    name: ClassVar[str] = "kserve_grpc"
    writer: MessageWriter  # writes the responses
    whole: bool  # whether the request asks for a single response with everything

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams

    def receive(self, call: Call, model: ServedModel) -> Call:
        try:
            _ = model.backend.name
        except ModelNotFound:
            raise InvalidPayload(
                f"model `{model.name}` answers with a function that does not accept tensors: call it over HTTP"
            ) from None
        return call

    def parse(self, call: Call, model: ServedModel) -> Generation | Inference:
        check_version(call, model)
        request = InferRequest(call)
        if not self._streams:
            for name in STREAMS:
                tensor = request.inputs.get(name)
                if request.parameters.get(name) is True or (tensor and (tensor.dtype, tensor.data) == ("BOOL", TRUE)):
                    raise InvalidPayload(
                        f"`{name}` must be false here: ModelStreamInfer is the method of streams. Given: True"
                    )
        self.writer = (StreamedMessageWriter if self._streams else MessageWriter)(model, request)
        call_parsed = parse_infer(request, model, self.writer, streams=self._streams)
        if isinstance(call_parsed, Inference):
            return call_parsed
        assert isinstance(call_parsed.formatter, TextInferFormatter), call_parsed.formatter.name
        formatter = GrpcFormatter(call_parsed.formatter.inner, self.writer)
        self.whole = not formatter.streams
        return replace(call_parsed, formatter=formatter)

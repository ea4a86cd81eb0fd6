"""The handler of infer requests over gRPC: that of the HTTP dialect, with a writer of messages."""

from dataclasses import replace
from typing import ClassVar

from lmi_core.errors import InvalidPayload, ModelNotFound
from lmi_core.handler import Call, Generation, Inference
from lmi_core.served_model import ServedModel
from lmi_handlers.kserve_grpc.writer import GrpcFormatter, MessageWriter, StreamedMessageWriter
from lmi_handlers.triton.generate import STREAMING
from lmi_handlers.triton.handler import TritonHandler
from lmi_handlers.triton.infer import parsed
from lmi_handlers.triton.infer_payload import InferRequest
from lmi_handlers.triton.metadata import check_version
from lmi_handlers.triton.text import TextInferFormatter

STREAMS = ("stream", STREAMING)  # tensors that request several responses
TRUE = b"\x01"


class GrpcHandler(TritonHandler):
    """A reader of one infer request; its attributes are set when the request is parsed."""

    name: ClassVar[str] = "kserve_grpc"
    writer: MessageWriter  # writes the responses
    whole: bool  # whether the request asks for a single response with everything

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams

    def receive(self, call: Call, model: ServedModel) -> Call:
        try:
            _ = model.backend
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
        call_parsed = parsed(request, model, self.writer, streams=self._streams)
        if isinstance(call_parsed, Inference):
            return call_parsed
        assert isinstance(call_parsed.formatter, TextInferFormatter), call_parsed.formatter.name
        formatter = GrpcFormatter(call_parsed.formatter.inner, self.writer)
        self.whole = not formatter.streams
        return replace(call_parsed, formatter=formatter)

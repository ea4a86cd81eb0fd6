"""The output formatter of texts over gRPC."""

from typing import ClassVar

import orjson

from lmi_core.generation.output import GenerationOutput
from lmi_core.inference import ResponseWriter
from lmi_handlers.triton.formatters import TritonFormatter, TritonStreamFormatter
from lmi_handlers.triton.text import TextInferFormatter

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

"""Writers of tensors for Triton's routes."""

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.generation.tensors import Tensor
from lmi_core.inference import ResponseWriter
from lmi_handlers.triton.formatters import EVENTS, scalar
from lmi_handlers.triton.infer_payload import HEADER_LENGTH, InferRequest
from lmi_handlers.triton.tensors import flat_array

JSON = "application/json"


class InferWriter(ResponseWriter):
    """Writer of KServe's answers: JSON, followed by the tensors requested as binary data."""

    streams: ClassVar[bool] = False

    def __init__(self, head: Mapping[str, str], request: InferRequest) -> None:
        self._head = head  # first members: the request's id, the model's name and version
        self._request = request
        self.content_type = JSON

    def write(self, response: Mapping[str, Tensor]) -> bytes:
        selected = self._request.select(response)
        outputs = [_output(name, tensor, binary) for name, (tensor, binary) in selected.items()]
        answer = orjson.dumps({**self._head, "outputs": outputs}, option=orjson.OPT_SERIALIZE_NUMPY)
        data = b"".join(tensor.data for tensor, binary in selected.values() if binary)
        if any(binary for _, binary in selected.values()):
            self.content_type = "application/octet-stream"
            self.headers = {HEADER_LENGTH: str(len(answer))}
        return answer + data

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps({"error": error.message})


class GenerateWriter(ResponseWriter):
    """Writer of the generate extension's answers: a JSON object with each tensor's values by name."""

    streams: ClassVar[bool] = False
    content_type = JSON

    def __init__(self, head: Mapping[str, str]) -> None:
        self._head = head

    def write(self, response: Mapping[str, Tensor]) -> bytes:
        outputs = {name: scalar(flat_array(tensor)) for name, tensor in response.items()}
        return self.frame(orjson.dumps({**self._head, **outputs}, option=orjson.OPT_SERIALIZE_NUMPY))

    def error(self, error: LmiError) -> bytes:
        return self.frame(orjson.dumps({"error": error.message}))

    def frame(self, answer: bytes) -> bytes:
        """Return the encoded answer, as an event in a stream."""
        return answer


class GenerateStreamWriter(GenerateWriter):
    """Writer of server-sent events, one for each of the backend's responses."""

    streams: ClassVar[bool] = True
    errors_are_events: ClassVar[bool] = True
    content_type = EVENTS

    def frame(self, answer: bytes) -> bytes:
        return b"data: " + answer + b"\n\n"


def _output(name: str, tensor: Tensor, binary: bool) -> dict[str, Any]:
    described = {"name": name, "datatype": tensor.dtype, "shape": tensor.shape}
    if binary:
        return described | {"parameters": {"binary_data_size": len(tensor.data)}}
    return described | {"data": flat_array(tensor)}

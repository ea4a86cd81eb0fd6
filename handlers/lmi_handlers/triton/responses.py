"""Responses of tensors, as Triton's routes write them."""

from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.inference import ResponseWriter
from lmi_core.tensors import Tensor
from lmi_handlers.triton.infer_payload import HEADER_LENGTH, InferRequest
from lmi_handlers.triton.tensors import flat_array

JSON = "application/json"


class InferWriter(ResponseWriter):
    """KServe's answer: JSON, and behind it the tensors that were asked for as binary data."""

    streams: ClassVar[bool] = False

    def __init__(self, head: Mapping[str, str], request: InferRequest) -> None:
        self._head = head  # what every answer begins with: the request's id, the model's name and version
        self._request = request
        self.content_type = JSON

    def write(self, response: Mapping[str, Tensor]) -> bytes:
        selected = self._request.selected(response)
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
    """The generate extension's: a JSON object with each tensor's values by its name."""

    streams: ClassVar[bool] = False
    content_type = JSON

    def __init__(self, head: Mapping[str, str]) -> None:
        self._head = head

    def write(self, response: Mapping[str, Tensor]) -> bytes:
        outputs = {name: _values(tensor) for name, tensor in response.items()}
        return self.frame(orjson.dumps({**self._head, **outputs}, option=orjson.OPT_SERIALIZE_NUMPY))

    def error(self, error: LmiError) -> bytes:
        return self.frame(orjson.dumps({"error": error.message}))

    def frame(self, answer: bytes) -> bytes:
        """One answer as it goes over the wire."""
        return answer


class GenerateStreamWriter(GenerateWriter):
    """The same as server-sent events, one for each response."""

    streams: ClassVar[bool] = True
    content_type = "text/event-stream; charset=utf-8"

    def frame(self, answer: bytes) -> bytes:
        return b"data: " + answer + b"\n\n"


def _output(name: str, tensor: Tensor, binary: bool) -> dict[str, Any]:
    described = {"name": name, "datatype": tensor.dtype, "shape": tensor.shape}
    if binary:
        return described | {"parameters": {"binary_data_size": len(tensor.data)}}
    return described | {"data": flat_array(tensor)}


def _values(tensor: Tensor) -> Any:
    """One as it is, several in a list, as Triton has them."""
    values = flat_array(tensor)
    return values[0] if len(values) == 1 else values

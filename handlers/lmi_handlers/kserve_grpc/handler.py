"""Infer requests over gRPC: conversion into calls of the HTTP dialect, the handler, and the writer of messages."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import orjson
from multidict import CIMultiDict
from tritonclient.grpc import service_pb2

from lmi_core.calls.answer import IGNORED_HEADER
from lmi_core.errors import InvalidPayload, LmiError, ModelNotFound
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.tensors import LENGTH_SIZE, STRUCT_FORMATS, Tensor
from lmi_core.handler import Call, Generation, Inference
from lmi_core.inference import ResponseWriter
from lmi_core.payloads.payload import quote, read_object
from lmi_core.served_model import ServedModel
from lmi_core.tolerance import ignored_header
from lmi_handlers.base.adapter_names import ADAPTER_HEADER
from lmi_handlers.fields.request_headers import REQUEST_ID_HEADER, accept_id, new_request_id
from lmi_handlers.triton.adapters import LORA_NAME, take_lora_names
from lmi_handlers.triton.formatters import TritonFormatter, TritonStreamFormatter
from lmi_handlers.triton.generate import STREAMING, version_of
from lmi_handlers.triton.handler import TritonHandler
from lmi_handlers.triton.infer import TextInferFormatter, parse_infer
from lmi_handlers.triton.infer_payload import HEADER_LENGTH, InferRequest
from lmi_handlers.triton.metadata import check_version
from lmi_handlers.triton.payload import SAMPLING_PARAMETERS

FINAL_RESPONSE = "triton_final_response"  # the parameter that marks a request's last streamed response

JSON, JSON_LINES = "application/json", "application/jsonlines"
STREAMS = ("stream", STREAMING)  # tensors that request several responses
TRUE = b"\x01"
FIELDS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
ADAPTERS = "adapters"  # this parameter also names an adapter
EMPTY_FINAL_RESPONSE = "triton_enable_empty_final_response"  # requests a final response even if it has no tensors
RESERVED = "triton_"  # prefix of parameters that Triton reserves


def input_data(message: Any) -> list[bytes]:
    """Return the data of each input tensor. Raise InvalidPayload if they violate the protocol."""
    raw = message.raw_input_contents
    if not raw:
        return [_pack(tensor) for tensor in message.inputs]
    for tensor in message.inputs:
        if tensor.HasField("contents"):
            raise InvalidPayload(f"`{tensor.name}` cannot have `contents` if the request has `raw_input_contents`")
    if len(raw) != len(message.inputs):
        raise InvalidPayload(
            f"`raw_input_contents` must have the data of each of the {len(message.inputs)} inputs. Given: {len(raw)}"
        )
    return list(raw)


def _pack(tensor: Any) -> bytes:
    """Return the bytes of a tensor's `contents`."""
    field = FIELDS.get(tensor.datatype)
    for given, _ in tensor.contents.ListFields():
        if given.name != field:
            advice = f"its values are `{field}`" if field else "give it as `raw_input_contents`"
            raise InvalidPayload(f"`{tensor.name}` of type {tensor.datatype} cannot have `{given.name}`: {advice}")
    if field is None:
        return b""
    values = getattr(tensor.contents, field)
    if field == "bytes_contents":
        return b"".join(len(value).to_bytes(LENGTH_SIZE, "little") + value for value in values)
    try:
        return struct.pack(f"<{len(values)}{STRUCT_FORMATS[tensor.datatype]}", *values)
    except struct.error:
        raise InvalidPayload(
            f"`{tensor.name}` holds a value that does not fit {tensor.datatype}. Given: {quote(list(values))}"
        ) from None


Metadata = Iterable[tuple[str, str | bytes]]


def headers_of(metadata: Metadata) -> CIMultiDict[str]:
    """Return a call's metadata as headers, without the binary ones."""
    return CIMultiDict((name, value) for name, value in metadata if isinstance(value, str))


def request_id(message: Any, headers: Mapping[str, str]) -> str:
    """Return the id for aborting the request: the client's if it is printable ASCII, otherwise a new one."""
    for given in (message.id, headers.get(REQUEST_ID_HEADER, "")):
        if found := accept_id(given):
            return found
    return new_request_id()


def infer_call(message: Any, headers: Mapping[str, str], peer: str) -> Call:
    """Return the call of an infer request. Raise InvalidPayload if its tensors violate the protocol."""
    data = input_data(message)
    parameters, adapters = take_lora_names(plain(message.parameters))
    value = parameters.pop(ADAPTERS, "")
    if not isinstance(value, str):
        raise InvalidPayload(f"`{ADAPTERS}` must be the name of an adapter. Given: {value}")
    adapters += [value] if value else []
    data, named = _take_from_sampling_parameters(message, data)
    inputs = [{**_named(tensor), "datatype": tensor.datatype, "shape": list(tensor.shape)} for tensor in message.inputs]
    for tensor, content in zip(inputs, data, strict=True):
        tensor["parameters"] = {**tensor["parameters"], "binary_data_size": len(content)}
    described = {
        "id": message.id,
        "parameters": {name: value for name, value in parameters.items() if not name.startswith(RESERVED)},
        "inputs": inputs,
        "outputs": [_named(output) for output in message.outputs],
    }
    head, version = orjson.dumps(described), message.model_version
    given = CIMultiDict(headers)
    given[HEADER_LENGTH] = str(len(head))
    for adapter in (*adapters, *named):  # the HTTP dialect checks later whether they agree
        given.add(ADAPTER_HEADER, adapter)
    return Call(
        path_parameters={"model": message.model_name} | ({"version": version} if version else {}),
        headers=given,
        body=b"".join([head, *data]),
        request_id=request_id(message, headers),
        path=f"/v2/models/{message.model_name}/infer",
        peer=peer,
    )


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of parameters, which are messages with one value each."""
    choices = {name: parameter.WhichOneof("parameter_choice") for name, parameter in parameters.items()}
    return {name: choice and getattr(parameters[name], choice) for name, choice in choices.items()}


def _named(part: Any) -> dict[str, Any]:
    return {"name": part.name, "parameters": plain(part.parameters)}


def _take_from_sampling_parameters(message: Any, data: list[bytes]) -> tuple[list[bytes], list[str]]:
    """Return the data without `lora_name` in the tensor of vLLM's parameters, and the adapters named there."""
    kept, names = list(data), list[str]()
    for place, (tensor, content) in enumerate(zip(message.inputs, data, strict=True)):
        if tensor.name == SAMPLING_PARAMETERS and tensor.datatype == "BYTES" and LORA_NAME.encode() in content:
            parameters, found = take_lora_names(read_object(content[LENGTH_SIZE:], f"`{SAMPLING_PARAMETERS}`"))
            written = orjson.dumps(parameters)
            kept[place] = len(written).to_bytes(LENGTH_SIZE, "little") + written
            names += found
    return kept, names


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

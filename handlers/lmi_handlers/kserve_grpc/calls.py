"""Conversion of gRPC requests into calls of the HTTP dialect, so that both are parsed in the same way."""

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from multidict import CIMultiDict

from lmi_core.errors import InvalidPayload
from lmi_core.generation.tensors import LENGTH_SIZE, STRUCT_FORMATS
from lmi_core.handler import Call
from lmi_core.payloads.payload import quote, read_object
from lmi_handlers.base.adapter_names import ADAPTER_HEADER
from lmi_handlers.fields.request_headers import REQUEST_ID_HEADER, accept_id, new_request_id
from lmi_handlers.triton.adapters import LORA_NAME, take_lora_names
from lmi_handlers.triton.infer_payload import HEADER_LENGTH
from lmi_handlers.triton.payload import SAMPLING_PARAMETERS

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
    head = orjson.dumps(described)
    return Call(
        path_parameters=path_parameters(message.model_name, message.model_version),
        headers=_with_adapters(headers, [*adapters, *named], len(head)),
        body=b"".join([head, *data]),
        request_id=request_id(message, headers),
        path=f"/v2/models/{message.model_name}/infer",
        peer=peer,
    )


def path_parameters(model: str, version: str) -> dict[str, str]:
    return {"model": model, **({"version": version} if version else {})}


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of parameters, which are messages with one value each."""
    return {name: _value(parameter) for name, parameter in parameters.items()}


def _value(parameter: Any) -> Any:
    choice = parameter.WhichOneof("parameter_choice")
    return None if choice is None else getattr(parameter, choice)


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


def _with_adapters(headers: Mapping[str, str], adapters: Iterable[str], head_length: int) -> CIMultiDict[str]:
    """Return the headers of the HTTP call with the adapters; the HTTP dialect checks later whether they agree."""
    found = CIMultiDict(headers)
    found[HEADER_LENGTH] = str(head_length)
    for adapter in adapters:
        found.add(ADAPTER_HEADER, adapter)
    return found

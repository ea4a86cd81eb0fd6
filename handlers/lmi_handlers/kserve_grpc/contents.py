"""Tensors in gRPC's messages: consecutive bytes, or values in typed fields."""

import struct
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.generation.tensors import LENGTH_SIZE, STRUCT_FORMATS
from lmi_core.payloads.payload import shown

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


def input_data(message: Any) -> list[bytes]:
    """Return the data of each input tensor. Raise InvalidPayload if they violate the protocol."""
    raw = message.raw_input_contents
    if not raw:
        return [_packed(tensor) for tensor in message.inputs]
    for tensor in message.inputs:
        if tensor.HasField("contents"):
            raise InvalidPayload(f"`{tensor.name}` cannot have `contents` if the request has `raw_input_contents`")
    if len(raw) != len(message.inputs):
        raise InvalidPayload(
            f"`raw_input_contents` must have the data of each of the {len(message.inputs)} inputs. Given: {len(raw)}"
        )
    return list(raw)


def _packed(tensor: Any) -> bytes:
    """Return the bytes of a tensor's `contents`."""
    field = FIELDS.get(tensor.datatype)
    for given, _ in tensor.contents.ListFields():
        if given.name != field:
            raise InvalidPayload(
                f"`{tensor.name}` of type {tensor.datatype} cannot have `{given.name}`: {_advice(field)}"
            )
    if field is None:
        return b""
    values = getattr(tensor.contents, field)
    if field == "bytes_contents":
        return b"".join(len(value).to_bytes(LENGTH_SIZE, "little") + value for value in values)
    try:
        return struct.pack(f"<{len(values)}{STRUCT_FORMATS[tensor.datatype]}", *values)
    except struct.error:
        raise InvalidPayload(
            f"`{tensor.name}` holds a value that does not fit {tensor.datatype}. Given: {shown(list(values))}"
        ) from None


def _advice(field: str | None) -> str:
    return f"its values are `{field}`" if field else "give it as `raw_input_contents`"

"""Conversion of `lora_name`, the adapter's name in Triton's vLLM backend, into `adapters`."""

from collections.abc import Iterator, Mapping
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call
from lmi_core.payloads.payload import quote, read_object
from lmi_handlers.base.adapter_names import object_with
from lmi_handlers.triton.infer_payload import HEADER_LENGTH
from lmi_handlers.triton.payload import SAMPLING_PARAMETERS

LORA_NAME = "lora_name"


def with_adapters(call: Call) -> Call:
    """Return the call with `lora_name` moved to `adapters`, wherever its parameters are.

    Raise InvalidPayload if it is not a name, or if `adapters` differs.
    """
    payload = None if HEADER_LENGTH in call.headers else object_with(call, LORA_NAME)
    if payload is None:
        return call
    kept, names = take_lora_names(payload)
    adapters = {*names, *([payload["adapters"]] if isinstance(payload.get("adapters"), str) else [])}
    if len(adapters) > 1:
        raise InvalidPayload(
            f"`{LORA_NAME}` and `adapters` name different adapters: {quote(sorted(adapters))}. Name one"
        )
    if kept == payload:
        return call
    return call.with_json(kept | ({"adapters": names[0]} if names else {}))


def take_lora_names(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Split `lora_name` from the values, also from objects of parameters, and return the adapters that it names.

    Raise InvalidPayload if it is not a name.
    """
    kept, names = dict(values), list(_names(values.get(LORA_NAME)))
    kept.pop(LORA_NAME, None)
    for box in ("parameters", SAMPLING_PARAMETERS):
        inner = _object(values.get(box))
        if inner is not None:
            kept[box], found = take_lora_names(inner)
            names += found
    return kept, names


def _names(value: object) -> Iterator[str]:
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(value, str | None):
        raise InvalidPayload(f"`{LORA_NAME}` must be the name of an adapter. Given: {quote(value)}")
    if value:
        yield value


def _object(value: object) -> dict[str, Any] | None:
    """Return an object, also from a string that contains a `lora_name`; None for anything else."""
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(value, str) and LORA_NAME in value:
        return read_object(value.encode(), f"`{SAMPLING_PARAMETERS}`")
    return value if isinstance(value, dict) else None

"""Conversion of `parameters.adapter_id`, TGI's name of an adapter, into `adapters`."""

from collections.abc import Mapping
from typing import Any

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call
from lmi_core.payloads.payload import may_have, shown
from lmi_core.payloads.plain_text import is_plain_text

FIELD = "adapter_id"


def with_adapters(call: Call) -> Call:
    """Return the call with `adapter_id` moved to `adapters`. Raise InvalidPayload if they differ."""
    if not may_have(call.body, FIELD) or is_plain_text(call.headers):
        return call
    try:
        payload = call.json()
    except InvalidPayload:
        return call  # the dialect reports the error
    if not isinstance(payload, dict) or FIELD not in (parameters := _parameters(payload)):
        return call
    kept = {name: value for name, value in parameters.items() if name != FIELD}
    adapter = _named_adapter(payload.get("adapters"), parameters[FIELD])
    return call.with_json({**payload, "parameters": kept, **adapter})


def _parameters(payload: Mapping[str, Any]) -> dict[str, Any]:
    parameters = payload.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _named_adapter(named: object, adapter_id: object) -> dict[str, str]:
    """Return the `adapters` field to add, if needed. Raise InvalidPayload if the two differ."""
    if not isinstance(adapter_id, str | None):
        raise InvalidPayload(f"`parameters.adapter_id` must be the name of an adapter. Given: {shown(adapter_id)}")
    if not adapter_id or named in (adapter_id, [adapter_id]):
        return {}
    if named:
        raise InvalidPayload(
            f"`adapters` and `parameters.adapter_id` name different adapters: {shown(named)} and {shown(adapter_id)}."
            " Name one"
        )
    return {"adapters": adapter_id}

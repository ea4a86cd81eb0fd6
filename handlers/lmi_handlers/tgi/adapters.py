"""TGI's way to name an adapter: `parameters.adapter_id`."""

from dataclasses import replace
from typing import Any

import orjson

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call
from lmi_core.payloads.payload import may_have, shown
from lmi_core.payloads.plain_text import is_plain_text

FIELD = "adapter_id"


def with_adapters(call: Call) -> Call:
    """Move the call's `adapter_id` to the body's `adapters`, which every dialect takes. Raise InvalidPayload."""
    if not may_have(call.body, FIELD) or is_plain_text(call.headers):
        return call
    try:
        payload = orjson.loads(call.body)
    except orjson.JSONDecodeError:
        return call  # for the dialect to complain of
    if not isinstance(payload, dict) or FIELD not in (parameters := _parameters(payload)):
        return call
    _name_adapter(payload, parameters.pop(FIELD))
    try:
        return replace(call, body=orjson.dumps(payload))
    except orjson.JSONEncodeError as error:  # it reads deeper nesting than it writes
        raise InvalidPayload(f"the body cannot be taken: {error}") from None


def _parameters(payload: dict[str, Any]) -> dict[str, Any]:
    parameters = payload.get("parameters")
    return parameters if isinstance(parameters, dict) else {}


def _name_adapter(payload: dict[str, Any], adapter_id: object) -> None:
    if not isinstance(adapter_id, str | None):
        raise InvalidPayload(f"`parameters.adapter_id` must be the name of an adapter. Given: {shown(adapter_id)}")
    named = payload.get("adapters")
    if not adapter_id or named in (adapter_id, [adapter_id]):
        return
    if named:
        raise InvalidPayload(
            f"`adapters` and `parameters.adapter_id` name different adapters: {shown(named)} and {shown(adapter_id)}."
            " Name one"
        )
    payload["adapters"] = adapter_id

"""Request bodies to typed payloads."""

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lmi_core.did_you_mean import did_you_mean
from lmi_core.errors import InvalidPayload

LONGEST_VALUE_SHOWN = 80

M = TypeVar("M", bound=BaseModel)


def read_json(body: bytes, what: str = "the body") -> Any:
    """Parse a JSON text. Raise InvalidPayload."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidPayload(f"{what} is not valid JSON: {error}") from None


def read_object(body: bytes, what: str = "the body") -> dict[str, Any]:
    """Parse a JSON text that is an object. Raise InvalidPayload."""
    return check_object(read_json(body, what), what)


def check_object(value: object, what: str = "the body") -> dict[str, Any]:
    """Return a JSON value that is an object. Raise InvalidPayload for any other."""
    if not isinstance(value, dict):
        raise InvalidPayload(f"{what} must be a JSON object. Given: {shown(value)}")
    return value


def may_have(body: bytes, field: str) -> bool:
    """Return whether a JSON body may have a field of that name, without reading it: names may be written in escapes."""
    return f'"{field}"'.encode() in body or b"\\u" in body


def read_payload(body: bytes, payload_type: type[M]) -> M:
    """Parse a body and check it. Raise InvalidPayload, naming the field, its bound and the value given."""
    return check_payload(read_object(body), payload_type)


def check_payload(payload: Mapping[str, Any], payload_type: type[M]) -> M:
    """Check a JSON object. Raise InvalidPayload, naming the field, its bound and the value given."""
    try:
        return payload_type.model_validate(payload)
    except ValidationError as error:
        raise InvalidPayload(explain(error, payload_type)) from None


def explain(
    error: ValidationError,
    model: type[BaseModel],
    owner: str = "this request",
    names: Mapping[str, str] | None = None,
) -> str:
    """Return the first thing that is wrong, in one sentence for the person who wrote the request.

    `names` has the person's own names of fields; "" leaves out the name of an object that the person did not write.
    """
    first = error.errors(include_url=False)[0]
    name = ".".join(filter(None, ((names or {}).get(str(part), str(part)) for part in first["loc"])))
    if not name:  # a rule about several fields, which names them itself
        return _bound(first)
    if first["type"] == "missing":
        return f"`{name}` is required"
    if first["type"] == "extra_forbidden":
        return f"`{name}` is no field of {owner}.{did_you_mean(name, model.model_fields)}"
    return f"`{name}` {_bound(first)}. Given: {shown(first['input'])}"


def _bound(error: ErrorDetails) -> str:
    """Return what follows the field's name: pydantic's "... should ..." as a "must ...", or a validator's own words."""
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    bound = error["msg"].partition(" after validation")[0]  # of lists, and followed by their length, which is shown
    return "must" + bound.partition(" should")[2] if " should" in bound else bound


def shown(value: object) -> str:
    """Return a value for an error message, cut short when it is long."""
    try:
        text = repr(value)
    except RecursionError:
        return "a value nested too deeply to show"
    return text if len(text) <= LONGEST_VALUE_SHOWN else text[:LONGEST_VALUE_SHOWN] + "..."

"""Parsing of request bodies into typed payloads."""

from codecs import BOM_UTF8
from collections.abc import Mapping
from itertools import count, takewhile
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lmi_core.errors import InvalidPayload
from lmi_core.errors.did_you_mean import did_you_mean

MAX_VALUE_LENGTH = 80
UNION_TAG = "<"  # begins the tag of a union's member, which pydantic adds to paths

M = TypeVar("M", bound=BaseModel)


def read_json(body: bytes, what: str = "the body") -> Any:
    """Parse a JSON text, which may start with a byte order mark. Raise InvalidPayload if it is not JSON."""
    try:
        return orjson.loads(body.removeprefix(BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise InvalidPayload(f"{what} is not valid JSON: {error}") from None


def read_object(body: bytes, what: str = "the body") -> dict[str, Any]:
    """Parse a JSON object. Raise InvalidPayload for anything else."""
    return check_object(read_json(body, what), what)


def check_object(value: object, what: str = "the body") -> dict[str, Any]:
    """Return the value if it is a JSON object. Raise InvalidPayload for any other."""
    if not isinstance(value, dict):
        raise InvalidPayload(f"{what} must be a JSON object. Given: {quote(value)}")
    return value


def read_payload(body: bytes, payload_type: type[M]) -> M:
    """Parse and validate a body. Raise InvalidPayload with the field, its bound and the given value."""
    return check_payload(read_object(body), payload_type)


def check_payload(payload: Mapping[str, Any], payload_type: type[M]) -> M:
    """Validate a JSON object. Raise InvalidPayload with the field, its bound and the given value."""
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
    """Return a sentence about the first error, with the client's name of the field.

    `names` maps fields to the client's names; "" leaves out an object that the client did not write.
    """
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if not str(part).startswith(UNION_TAG)]
    name = ".".join(filter(None, ((names or {}).get(part, part) for part in path)))
    if not name and first["type"] != "extra_forbidden":  # a validator that names its fields itself
        return _condition(first)
    if first["type"] == "missing":
        return f"`{name}` is required"
    if first["type"] == "extra_forbidden":
        hint = did_you_mean(name, model.model_fields) if "." not in name else ""  # nested objects have other fields
        return f"`{name}` is not a field of {owner}.{hint}"
    return f"`{name}` {_condition(first)}. Given: {quote(first['input'])}"


def _condition(error: ErrorDetails) -> str:
    """Return the condition on the field: pydantic's "... should ..." as "must ...", or a validator's own text."""
    if error["type"] == "value_error":
        return error["msg"].removeprefix("Value error, ")
    if error["type"] == "model_type":
        return "must be an object"  # pydantic's message names one of our classes
    bound = error["msg"].partition(" after validation")[0]  # the suffix for lists; their length is reported anyway
    return "must" + bound.partition(" should")[2] if " should" in bound else bound


def quote(value: object) -> str:
    """Return a value as text for error messages, truncated if long."""
    text = repr(_beginning(value, count(1)))
    return text if len(text) <= MAX_VALUE_LENGTH else text[:MAX_VALUE_LENGTH] + "..."


def _beginning(value: object, items: "count[int]") -> object:
    """Return the part of a JSON value that can be shown, because writing megabytes takes long."""
    if isinstance(value, str):
        return value[: MAX_VALUE_LENGTH + 1]
    if isinstance(value, list):
        return [_beginning(each, items) for each in takewhile(lambda _: next(items) <= MAX_VALUE_LENGTH, value)]
    if isinstance(value, dict):
        pairs = takewhile(lambda _: next(items) <= MAX_VALUE_LENGTH, value.items())
        return {_beginning(name, items): _beginning(each, items) for name, each in pairs}
    return value

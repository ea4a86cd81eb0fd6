"""Request bodies whose unknown fields are dropped, and whose numbers and booleans may have another JSON type."""

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.payload import explain

_NAME_IT = "name an adapter in the body's `adapters`, or outside the body (docs/how_to/adapters.md)"
_NAME_SESSIONS = "sessions are named in a header, SageMaker's `SessionId` (docs/reference/sagemaker.md)"

_ADAPTER = re.compile(r"[Aa]dapt[eo]r|ADAPT[EO]R|(?:^|[^A-Za-z])lora|L(?:ora|ORA|oRA)")  # does not match `exploration`
# The names that clients of other servers use for a session; no dialect here uses them.
_SESSION = frozenset({"requesttype", "session", "session_id", "sessionid"})

MAX_NAMES_COMPARED = 50  # unknown names compared with a missing field's; a body may contain very many

MAX_EXACT = 2**53  # a double holds every integer up to it
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)  # those fit in 64 bits
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,2})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}

M = TypeVar("M", bound=BaseModel)


def _as_float(value: object) -> object:
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def as_integer(value: object) -> object:
    """Return the integer that equals a number or a text of another JSON type; any other value unchanged."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    number = _as_float(value)
    if isinstance(number, float) and number.is_integer() and abs(number) <= MAX_EXACT:
        return int(number)
    return value


_READERS: Mapping[str, Callable[[object], object]] = {
    "int": as_integer,
    "float": _as_float,
    "bool": lambda value: _BOOLEANS.get(value.lower(), value) if isinstance(value, str) else value,
}


def _fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas of the model's fields, which its validators may wrap."""
    while schema["type"] != "model-fields":
        if "schema" not in schema:  # a reference to a model defined elsewhere
            return []
        schema = schema["schema"]
    return list(schema["fields"].values())


class ExactNumbers(BaseModel):
    """A model whose int, float and bool fields also accept equal values of another JSON type.

    Clients send 64.0 and "64" for 64, and "true" for true, which servers with pydantic accept. Nothing is rounded, and
    booleans are not numbers.
    """

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        for owner in _fields(schema):
            while "schema" in owner["schema"]:  # wrappers such as defaults
                owner = owner["schema"]
            inner = owner["schema"]
            if reader := _READERS.get(inner["type"]):
                owner["schema"] = core_schema.no_info_before_validator_function(reader, inner)
        return schema


class TolerantPayload(ExactNumbers):
    """A body, or an object in one, whose JSON schema allows additional fields.

    `take_known` drops only unknown fields of the body itself; `drop_unknown_fields` drops those of an object in it.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core_schema)
        handler.resolve_ref_schema(schema)["additionalProperties"] = True
        return schema


def take_known(payload: Mapping[str, Any], payload_type: type[M], strict: bool) -> tuple[M, tuple[str, ...]]:
    """Return the payload and the names of dropped unknown fields; if strict, unknown fields are errors.

    Raise InvalidPayload for an invalid field, and for one that cannot be dropped without changing the answer.
    """
    known, unknown = drop_unknown_fields(payload, payload_type, strict)
    try:
        return payload_type.model_validate(known), unknown
    except ValidationError as error:
        raise InvalidPayload(explain(error, payload_type) + _misspelt(error, unknown)) from None


def drop_unknown_fields(
    payload: Mapping[str, Any], payload_type: type[BaseModel], strict: bool
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the known fields and the names of dropped ones; if strict, drop none.

    Raise InvalidPayload for an unknown field that cannot be dropped without changing the answer.
    """
    unknown = payload.keys() - field_names(payload_type)
    for name in unknown:
        if payload[name] is not None and (instead := refusal_advice(name)):
            raise InvalidPayload(f"`{name}` is not a field of this request: {instead}")
    if strict or not unknown:
        return payload, ()
    kept = {name: value for name, value in payload.items() if name not in unknown}
    return kept, tuple(name for name in payload if name in unknown and payload[name] is not None)


def refusal_advice(name: str) -> str | None:
    """Return the advice for a field that cannot be dropped without changing the answer, or None for others."""
    if seems_to_name_an_adapter(name):
        return _NAME_IT
    if name == "output_formatter":
        return "the model's option.output_formatter selects the output formatter"
    return _NAME_SESSIONS if name.lower() in _SESSION else None


def seems_to_name_an_adapter(name: str) -> bool:
    """Return whether a field's name seems meant to select an adapter."""
    return _ADAPTER.search(name) is not None


@cache
def field_names(payload_type: type[BaseModel]) -> frozenset[str]:
    """Return every name of the type's fields, including aliases."""
    aliases = {field.alias for field in payload_type.model_fields.values() if field.alias is not None}
    return frozenset(aliases | payload_type.model_fields.keys())


def _misspelt(error: ValidationError, unknown: tuple[str, ...]) -> str:
    """Return a hint that an unknown name may be a misspelt missing field, or ""."""
    first = error.errors(include_url=False)[0]
    if first["type"] != "missing":
        return ""
    near = get_close_matches(str(first["loc"][-1]), unknown[:MAX_NAMES_COMPARED], n=1)
    return f". Did you send it as `{near[0]}`?" if near else ""

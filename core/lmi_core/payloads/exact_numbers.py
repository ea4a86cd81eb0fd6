"""Numbers and booleans that clients send as another JSON type."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

MAX_EXACT = 2**53  # a double holds every integer up to it
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)  # those fit in 64 bits
_NUMBER = re.compile(r"-?\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,2})?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


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

"""Conversion of bare text to the types in a function's JSON schema."""

import ast
import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
INTEGER = re.compile(r"[+-]?\d+")
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
KINDS: dict[type, str] = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}
CHOICES = ("anyOf", "oneOf", "allOf")
MAX_REFERENCES = 8  # references followed in a row
MAX_CHOICES = 1000  # schemas examined for the types of one value


def parameter_schema(schema: Mapping[str, Any], name: str) -> Any:
    """Return the schema of a function's parameter, or None if it is not declared."""
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    for _ in range(MAX_REFERENCES):
        reference = found.get("$ref") if isinstance(found, Mapping) else None
        if not isinstance(reference, str):
            break
        found = _resolve(schema, reference)
    return found


def types_of(schema: Any) -> set[str]:
    """Return the names of the JSON types that values of the schema may have."""
    types: set[str] = set()
    choices = [schema]
    for _ in range(MAX_CHOICES):
        if not choices:
            break
        choice = choices.pop()
        if isinstance(choice, Mapping):
            types |= _own_types(choice)
            choices += (each for name in CHOICES for each in _items(choice, name))
    return types


def typed_value(text: str, types: set[str]) -> Any:
    """Return the text's value in one of the types; the text itself if it fits none of them."""
    for name, read in READERS.items():
        if name in types:
            with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
                return read(text.strip())
    return text


def json_value(text: str, otherwise: str | None = None) -> Any:
    """Return the value of JSON text; if it is not JSON, return `otherwise`, by default the text itself."""
    with suppress(ValueError, RecursionError):
        return _json(text)
    return text if otherwise is None else otherwise


def json_text(value: Any) -> str:
    """Return the value as JSON text, with lone surrogates kept as escapes."""
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if LONE_SURROGATE.search(text) else text


def _own_types(schema: Mapping[str, Any]) -> set[str]:
    """Return the types that the schema names directly, or those of its enumerated values."""
    given = schema.get("type")
    types = {name for name in ([given] if isinstance(given, str) else _items(schema, "type")) if isinstance(name, str)}
    constant = [schema["const"]] if "const" in schema else []
    return types or {KINDS.get(type(value), "object") for value in [*_items(schema, "enum"), *constant]}


def _items(schema: Mapping[str, Any], name: str) -> list[Any]:
    """Return a keyword's list; anything else counts as empty, because the schema is not validated."""
    found = schema.get(name)
    return found if isinstance(found, list) else []


def _resolve(schema: Mapping[str, Any], reference: str) -> Any:
    found: Any = schema
    for part in reference.removeprefix("#/").split("/"):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _null(text: str) -> None:
    if text.lower() not in ("null", "none"):
        raise ValueError


def _integer(text: str) -> int:
    if INTEGER.fullmatch(text):
        return int(text)
    number = float(text)
    if not number.is_integer():
        raise ValueError
    return int(number)


def _number(text: str) -> float | int:
    if INTEGER.fullmatch(text):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _boolean(text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise ValueError
    return BOOLEANS[text.lower()]


def _container(kind: type, text: str) -> Any:
    try:
        value = _json(text)
    except ValueError:
        value = ast.literal_eval(text)  # Python syntax: {'a': True}
        json.dumps(value, allow_nan=False)
    if not isinstance(value, kind):
        raise ValueError
    return value


def _json(text: str) -> Any:
    return json.loads(text, parse_constant=_no_constant, parse_float=_number)


def _no_constant(name: str) -> None:
    raise ValueError(name)


# In this order: text that can be read as a number is a number, even if the schema also allows a string.
READERS: dict[str, Callable[[str], Any]] = {
    "null": _null,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "object": partial(_container, dict),
    "array": partial(_container, list),
}

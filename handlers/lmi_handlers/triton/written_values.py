"""Numbers and booleans written as strings, the form of parameters in Triton's vLLM backend."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

BOOLEANS = {"true": True, "false": False}
MAX_LENGTH = 64  # characters of a number

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")


def read_written(values: Mapping[str, Any], fields: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return the parameters with strings of numbers and booleans parsed.

    Strings for text fields and unknown fields stay unchanged.
    """
    return {name: _read(value, fields.get(name)) for name, value in values.items()}


def read_scalar(text: str) -> object:
    """Return the number or boolean in a text, otherwise the text itself."""
    stripped = text.strip()
    if stripped.lower() in BOOLEANS:
        return BOOLEANS[stripped.lower()]
    if len(stripped) > MAX_LENGTH or not stripped.isascii():
        return text
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    return float(stripped) if _NUMBER.fullmatch(stripped) else text


def _read(value: object, field: FieldInfo | None) -> object:
    if isinstance(value, str) and field is not None and not _takes_text(field.annotation):
        return read_scalar(value)
    return value


def _takes_text(annotation: object) -> bool:
    """Return whether a type accepts any string, also within a list; a Literal does not count."""
    if annotation in (str, Any):
        return True
    return get_origin(annotation) is not Literal and any(map(_takes_text, get_args(annotation)))

"""JSON in texts, with exact integers."""

import json
import re
from contextlib import suppress
from typing import Any

import orjson

DIGITS = 19  # all shorter numbers fit in 64 bits
LONG_NUMBER = re.compile(rf"\d{{{DIGITS}}}")
STEP = 100_000  # characters, searched in a few milliseconds before other threads may run


def exact_json(text: str) -> Any:
    """Parse JSON as orjson does, but keep integers of more than 64 bits, which orjson turns into floats.

    Raise orjson.JSONDecodeError if the text is not JSON.
    """
    value = orjson.loads(text)
    if any(LONG_NUMBER.search(text, begin, begin + STEP + DIGITS) for begin in range(0, len(text), STEP)):
        with suppress(ValueError, RecursionError):  # an integer with thousands of digits, or deep nesting
            return json.loads(text)
    return value


def writable(value: Any) -> Any:
    """Return a form of parsed JSON that orjson can write: the value itself, or its text if it has long integers."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        return orjson.Fragment(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return value

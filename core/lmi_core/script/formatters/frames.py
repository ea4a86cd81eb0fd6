"""Replacement of the JSON objects in a formatter's bytes."""

import re
from collections.abc import Callable
from typing import Any

import orjson

Change = Callable[[dict[str, Any]], Any]  # maps an object to its replacement; None removes it

WHOLE = "application/json"
LINES = ("application/jsonlines", "application/x-ndjson")
EVENTS = "text/event-stream"

_LAST_DATA = re.compile(rb"(?:.*\n)*data:")  # includes the lines before it; the data may contain the word too
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


class WrongResult(Exception):
    """A formatter's result of a wrong type, which its message names."""


def media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def has_frames(content_type: str) -> bool:
    return media_type(content_type) in (WHOLE, *LINES, EVENTS)


def encode(value: Any) -> bytes:
    """Return text and bytes unchanged, objects as JSON.

    Raise WrongResult for numbers, None and values that JSON does not have.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return _as_json(value)


def _as_json(value: Any) -> bytes:
    if value is None or isinstance(value, int | float):
        raise WrongResult(type(value).__name__)
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except orjson.JSONEncodeError as error:
        raise WrongResult(f"{type(value).__name__}. {error}") from None


def frame(value: Any, content_type: str) -> bytes:
    """Return one result as a line or an event, if the content type is one of lines or events."""
    data = encode(value)
    kind = media_type(content_type)
    if kind == EVENTS:
        return data if data.startswith(b"data:") and data.endswith(b"\n\n") else _event(data)
    return data if kind not in LINES or data.endswith(b"\n") else data + b"\n"


def change_frames(data: bytes, content_type: str, change: Change) -> bytes:
    """Return the data with every object changed; `[DONE]`, comments and anything except JSON are kept."""
    kind = media_type(content_type)
    if kind == WHOLE:
        answer = orjson.loads(data)
        if isinstance(answer, list):
            return b"[" + b",".join([_as_json(change(item)) for item in answer]) + b"]"
        return encode(change(answer))
    if kind == EVENTS:
        events = [event for event in data.split(b"\n\n") if event]
        return b"".join([_change_event(event, change) for event in events])
    results = [change(orjson.loads(line)) for line in data.splitlines() if line]
    return b"".join([frame(result, content_type) for result in results if result is not None])


def _change_event(event: bytes, change: Change) -> bytes:
    field = _LAST_DATA.match(event)
    if field is None or not (payload := event[field.end() :]).lstrip().startswith(b"{"):
        return event + b"\n\n"
    result = change(orjson.loads(payload))
    if result is None:
        return b""
    blank = b" " if payload.startswith(b" ") else b""
    text = encode(result)
    return frame(text, EVENTS) if text.startswith(b"data:") else field.group() + blank + text + b"\n\n"


def _event(data: bytes) -> bytes:
    return data.rstrip(b"\n") + b"\n\n" if data.startswith(b"data:") else b"data: " + data + b"\n\n"

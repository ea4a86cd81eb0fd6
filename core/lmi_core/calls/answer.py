"""Answers without a formatter."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

IGNORED_HEADER = "X-Lmi-Ignored-Parameters"  # the names of `Answer.ignored`


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer without a formatter: an error before anything was sent, or one that needs no generation."""

    status: int
    content_type: str
    body: bytes
    ignored: tuple[str, ...] = ()  # unknown fields of the request, which were dropped
    headers: Mapping[str, str] = field(default_factory=dict)  # additional headers


def json_answer(
    content: object, status: int = 200, ignored: tuple[str, ...] = (), headers: Mapping[str, str] | None = None
) -> Answer:
    return Answer(status, "application/json", orjson.dumps(content), ignored, headers or {})

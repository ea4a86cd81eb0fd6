"""The forms of answers, for the OpenAPI document."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

JSON = "application/json"
JSON_LINES = "application/jsonlines"
EVENTS = "text/event-stream"
TEXT = "text/plain"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an answer: its media type, and the type of its JSON, such as a TypedDict.

    For streams, the type is that of each event or line; None means no JSON. The server does not check answers against
    it.
    """

    type: Any = None
    content_type: str = JSON
    statuses: tuple[int, ...] = (200,)
    formatted: bool = False  # whether it needs a model with `option.output_formatter`


def stream_forms(type: Any, *content_types: str) -> tuple[AnswerForm, ...]:
    """Return the forms of a stream of events or lines of this type."""
    return tuple(AnswerForm(type, content_type) for content_type in content_types)


def failures(type: Any, *statuses: int, content_type: str = JSON) -> AnswerForm:
    """Return the form of errors with these statuses."""
    return AnswerForm(type, content_type, tuple(sorted(set(statuses))))


def output_formatter_forms(forms: Iterable[AnswerForm]) -> tuple[AnswerForm, ...]:
    """Return the forms of another dialect that `option.output_formatter` can select instead of a route's own.

    Any client can request lines with the header `Accept`.
    """
    return tuple(replace(form, formatted=form.content_type != JSON_LINES) for form in forms)

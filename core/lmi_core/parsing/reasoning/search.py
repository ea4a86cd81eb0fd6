"""Search for markers in streamed text, holding back only what could become one."""

from collections.abc import Sequence
from typing import NamedTuple


class Found(NamedTuple):
    """The position of a marker in a text; with `marker` "", where an incomplete one may begin."""

    place: int
    marker: str


def find_first(text: str, markers: Sequence[str], *, final: bool) -> Found:
    """Return the first marker, the longest one at its position; `final` tells that no more text comes.

    Without a marker, `place` is the end of the text that can be returned.
    """
    if not any(marker[0] in text for marker in markers):  # the usual case, which must be fast
        return Found(len(text), "")
    whole = [(text.find(marker), -len(marker), marker) for marker in markers if marker in text]
    place, _, marker = min(whole, default=(len(text), 0, ""))
    if final:
        return Found(place, marker)
    begun = _place_of_start(text, markers)
    return Found(place, marker) if place < begun else Found(min(place, begun), "")


def starts_with(text: str, markers: Sequence[str], *, final: bool) -> str | None:
    """Return the longest marker that the text starts with, "" for none, or None while more text could decide."""
    if not final and any(marker.startswith(text) and marker != text for marker in markers):
        return None
    return max((marker for marker in markers if text.startswith(marker)), key=len, default="")


def _place_of_start(text: str, markers: Sequence[str]) -> int:
    """Return the start of the longest suffix that is a proper prefix of a marker; otherwise the text's length."""
    max_length = max(map(len, markers), default=0) - 1
    for place in range(max(0, len(text) - max_length), len(text)):
        end = text[place:]
        if any(marker.startswith(end) and len(marker) > len(end) for marker in markers):
            return place
    return len(text)

"""Find markers in text that comes in parts, and hold back no more than what could become one."""

from collections.abc import Sequence
from typing import NamedTuple


class Found(NamedTuple):
    """Where in a text a marker is; with `marker` "", where one may begin that is not whole yet."""

    place: int
    marker: str


def find_first(text: str, markers: Sequence[str], *, final: bool) -> Found:
    """Return the first marker, the longest one at its place. `final`: no more text comes.

    Where the text has none, `place` is the end of what can be given out.
    """
    if not any(marker[0] in text for marker in markers):  # nearly always, and then it should take no time
        return Found(len(text), "")
    whole = [(text.find(marker), -len(marker), marker) for marker in markers if marker in text]
    place, _, marker = min(whole, default=(len(text), 0, ""))
    if final:
        return Found(place, marker)
    begun = _place_of_start(text, markers)
    return Found(place, marker) if place < begun else Found(min(place, begun), "")


def starts_with(text: str, markers: Sequence[str], *, final: bool) -> str | None:
    """Return the longest marker that the text starts with, "" if there is none, None while that is not known."""
    if not final and any(marker.startswith(text) and marker != text for marker in markers):
        return None
    return max((marker for marker in markers if text.startswith(marker)), key=len, default="")


def _place_of_start(text: str, markers: Sequence[str]) -> int:
    """Return where the longest end of the text begins that a longer marker starts with; else the text's length."""
    longest = max(map(len, markers), default=0) - 1
    for place in range(max(0, len(text) - longest), len(text)):
        end = text[place:]
        if any(marker.startswith(end) and len(marker) > len(end) for marker in markers):
            return place
    return len(text)

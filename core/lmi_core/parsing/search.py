"""Search for markers in streamed text that holds back only possible starts of markers, and marks of tokens."""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

NOTHING = "(?!)"  # matches nowhere
MARK = "\ud800"  # precedes a marker that is a token of its own; generated text is UTF-8, which cannot contain it


class Found(NamedTuple):
    """The position of a marker in a text; if `marker` is "", that of a possible start of one."""

    place: int
    marker: str


def unmarked(text: str) -> str:
    """Return the text without the marks of tokens."""
    return text.replace(MARK, "")


def find_first(text: str, markers: Sequence[str], *, final: bool, start: int = 0) -> Found:
    """Return the first marker, the longest one at its position; `final` means that the text is complete.

    Without a marker, `place` is the end of the text that can be returned.
    """
    found = _patterns(tuple(markers)).marker.search(text, start)
    end = len(text) if final else partial_marker_start(text, markers, start)
    if found is None or found.start() >= end:
        return Found(end, "")
    return Found(found.start(), found.group())


def starts_with(text: str, markers: Sequence[str], *, final: bool, start: int = 0) -> str | None:
    """Return the longest marker at `start`, "" for none, or None while more text could decide."""
    if not final and any(_is_partial(marker, text, start) for marker in markers):
        return None
    return max((marker for marker in markers if text.startswith(marker, start)), key=len, default="")


def partial_marker_start(text: str, markers: Sequence[str], start: int = 0) -> int:
    """Return where an incomplete marker at the end of the text starts, if any; otherwise the text's length."""
    patterns = _patterns(tuple(markers))
    for found in patterns.beginning.finditer(text, max(start, len(text) - patterns.max_length + 1)):
        if any(_is_partial(marker, text, found.start()) for marker in patterns.long):
            return found.start()
    return len(text)


def _is_partial(marker: str, text: str, start: int) -> bool:
    """Return whether the text from `start` on is a proper prefix of the marker."""
    return len(text) - start < len(marker) and marker.startswith(text[start:])


class _Patterns(NamedTuple):
    marker: re.Pattern[str]
    beginning: re.Pattern[str]  # of the first characters of long markers
    long: tuple[str, ...]  # the markers of several characters, which can be incomplete
    max_length: int


@cache
def _patterns(markers: tuple[str, ...]) -> _Patterns:
    ordered = sorted(markers, key=len, reverse=True)
    long = tuple(each for each in ordered if len(each) > 1)
    found, beginning = ("|".join(map(re.escape, texts)) for texts in (ordered, sorted({each[0] for each in long})))
    return _Patterns(
        re.compile(found or NOTHING), re.compile(beginning or NOTHING), long, max(map(len, ordered), default=1)
    )

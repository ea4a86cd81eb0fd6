"""Reading of streamed text, with generators that yield while they wait for more of it."""

import functools
import re
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Waiting = Generator[None, None, T]  # yields to wait for more text, and returns what was read

ANYTHING_BUT_A_BLANK = re.compile(r"\S")


class TextReader:
    """A reader of streamed text, whose results do not depend on how the text was split into parts."""

    def __init__(self) -> None:
        self.ended = False  # the text is complete
        self.reread = 0  # characters to be read again after `rewind`
        self._text = ""
        self._at = 0

    @property
    def unread(self) -> str:
        return self._text[self._at :]

    def add(self, text: str) -> None:
        self._text += text

    def mark(self) -> int:
        """Return the position, for `rewind` until the next `forget`."""
        return self._at

    def rewind(self, mark: int) -> None:
        self.reread += self._at - mark
        self._at = mark

    def since(self, mark: int) -> str:
        """Return the text read since the mark."""
        return self._text[mark : self._at]

    def forget(self) -> None:
        """Drop the text read so far, which invalidates earlier marks."""
        self._text, self._at = self.unread, 0

    def skip(self, count: int) -> None:
        """Advance by `count` characters."""
        self._at += count

    def more(self) -> Waiting[bool]:
        """Wait for unread text; return False if the text is over."""
        while self._at == len(self._text) and not self.ended:
            yield
        return self._at < len(self._text)

    def peek(self, count: int) -> Waiting[str]:
        """Return the next `count` characters without reading them; fewer only at the end of the text."""
        while len(self._text) - self._at < count and not self.ended:
            yield
        return self._text[self._at : self._at + count]

    def blanks(self) -> Waiting[None]:
        """Skip blanks and line breaks."""
        while True:
            found = ANYTHING_BUT_A_BLANK.search(self._text, self._at)
            self._at = found.start() if found else len(self._text)
            if found or self.ended:
                return
            yield

    def one_of(self, *markers: str) -> Waiting[str]:
        """Read the longest marker that comes next; return "" if none does."""
        max_length = max(map(len, markers), default=0)
        while not self.ended and len(self._text) - self._at < max_length:
            if not any(_grows_into(self.unread, marker) for marker in markers):
                break
            yield
        found = max((marker for marker in markers if self._text.startswith(marker, self._at)), key=len, default="")
        self._at += len(found)
        return found

    def optional(self, *markers: str) -> Waiting[str]:
        """Read the marker that comes next, and blanks before it; if none does, read nothing and return ""."""
        mark = self._at
        if not markers:
            return ""
        yield from self.blanks()
        found = yield from self.one_of(*markers)
        if not found:
            self._at = mark
        return found

    def until(self, *markers: str) -> Waiting[tuple[str, str]]:
        """Read through the first marker; return the text before it, and the marker, or "" at the end of the text."""
        parts: list[str] = []
        marker = yield from self.write_until(markers, parts.append)
        return "".join(parts), marker

    def write_until(
        self, markers: tuple[str, ...], write: Callable[[str], None], *, forgets: bool = False
    ) -> Waiting[str]:
        """Write the text before the first marker as soon as it is certain; read and return the marker."""
        pattern, beginning, max_length = _patterns(markers)
        while True:
            found = pattern.search(self._text, self._at)
            end = len(self._text) if self.ended else self._start_of_a_marker(markers, beginning, max_length)
            if found and found.start() < end:
                self._write(found.start(), write)
                self._at = found.end()
                return found.group()
            self._write(min(end, found.start()) if found else end, write)
            if self.ended:
                return ""
            if forgets:
                self.forget()
            yield

    def write_on(self, markers: tuple[str, ...], write: Callable[[str], None]) -> Waiting[str]:
        """Do as `write_until`, and forget the written text, so that the returned marker is at position 0."""
        marker = yield from self.write_until(markers, write, forgets=True)
        self.skip(-len(marker))
        self.forget()
        self.skip(len(marker))
        return marker

    def _write(self, end: int, write: Callable[[str], None]) -> None:
        if end > self._at:
            text, self._at = self._text[self._at : end], end
            write(text)

    def _start_of_a_marker(self, markers: tuple[str, ...], beginning: re.Pattern[str], max_length: int) -> int:
        """Return the index at which an incomplete marker at the end of the text begins."""
        for found in beginning.finditer(self._text, max(self._at, len(self._text) - max_length + 1)):
            rest = self._text[found.start() :]
            if any(_grows_into(rest, marker) for marker in markers):
                return found.start()
        return len(self._text)


def without_begun_marker(text: str, markers: tuple[str, ...]) -> str:
    """Return the text without the part of a marker that it ends with, if any."""
    for start in range(max(0, len(text) - max(map(len, markers)) + 1), len(text)):
        if any(_grows_into(text[start:], marker) for marker in markers):
            return text[:start]
    return text


def _grows_into(text: str, marker: str) -> bool:
    """Return whether the text is a proper prefix of the marker."""
    return len(text) < len(marker) and marker.startswith(text)


@functools.cache
def _patterns(markers: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], int]:
    """Return patterns for the markers and for their first characters, and the maximum marker length."""
    ordered = sorted(markers, key=len, reverse=True)
    characters = sorted({marker[0] for marker in markers})
    found, beginning = ("|".join(map(re.escape, texts)) for texts in (ordered, characters))
    return re.compile(found), re.compile(beginning), len(ordered[0])

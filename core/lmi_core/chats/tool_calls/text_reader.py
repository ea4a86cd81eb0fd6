"""Reading of a text that is still being written: a generator that needs more of it yields, and goes on later."""

import functools
import re
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

Waiting = Generator[None, None, T]  # yields where more text is needed, and returns what was read

ANYTHING_BUT_A_BLANK = re.compile(r"\S")


class TextReader:
    """A position in the text so far. Whatever it returns is the same however the text was cut into parts."""

    def __init__(self) -> None:
        self.ended = False  # no more text comes
        self.reread = 0  # characters that were given back by `rewind`
        self._text = ""
        self._at = 0

    @property
    def unread(self) -> str:
        return self._text[self._at :]

    def add(self, text: str) -> None:
        self._text += text

    def mark(self) -> int:
        """Return the position, which `rewind` takes until the next `forget`."""
        return self._at

    def rewind(self, mark: int) -> None:
        self.reread += self._at - mark
        self._at = mark

    def since(self, mark: int) -> str:
        """Return what was read since the mark."""
        return self._text[mark : self._at]

    def forget(self) -> None:
        """Drop what was read. Earlier marks are void."""
        self._text, self._at = self.unread, 0

    def skip(self, count: int) -> None:
        """Take so many characters as read."""
        self._at += count

    def more(self) -> Waiting[bool]:
        """Wait until there is unread text; False if there never is."""
        while self._at == len(self._text) and not self.ended:
            yield
        return self._at < len(self._text)

    def peek(self, count: int) -> Waiting[str]:
        """Return the next characters without reading them: fewer only at the end of the text."""
        while len(self._text) - self._at < count and not self.ended:
            yield
        return self._text[self._at : self._at + count]

    def blanks(self) -> Waiting[None]:
        """Read blanks and line breaks, if any come."""
        while True:
            found = ANYTHING_BUT_A_BLANK.search(self._text, self._at)
            self._at = found.start() if found else len(self._text)
            if found or self.ended:
                return
            yield

    def one_of(self, *markers: str) -> Waiting[str]:
        """Read the marker that the text goes on with, the longest if there are several; "" if there is none."""
        longest = max(map(len, markers), default=0)
        while not self.ended and len(self._text) - self._at < longest:
            if not any(_grows_into(self.unread, marker) for marker in markers):
                break
            yield
        found = max((marker for marker in markers if self._text.startswith(marker, self._at)), key=len, default="")
        self._at += len(found)
        return found

    def optional(self, *markers: str) -> Waiting[str]:
        """Read the marker that comes next, and the blanks before it; nothing if none does."""
        mark = self._at
        if not markers:
            return ""
        yield from self.blanks()
        found = yield from self.one_of(*markers)
        if not found:
            self._at = mark
        return found

    def until(self, *markers: str) -> Waiting[tuple[str, str]]:
        """Read up to the first of the markers and it too; return both. At the end of the text the marker is ""."""
        parts: list[str] = []
        marker = yield from self.write_until(markers, parts.append)
        return "".join(parts), marker

    def write_until(
        self, markers: tuple[str, ...], write: Callable[[str], None], *, forgets: bool = False
    ) -> Waiting[str]:
        """Write what comes before the first of the markers as soon as it is certain; return the marker, read."""
        pattern, beginning, longest = _patterns(markers)
        while True:
            found = pattern.search(self._text, self._at)
            end = len(self._text) if self.ended else self._start_of_a_marker(markers, beginning, longest)
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
        """Do as `write_until`, and forget what was written. The marker that is returned is at the position 0."""
        marker = yield from self.write_until(markers, write, forgets=True)
        self.skip(-len(marker))
        self.forget()
        self.skip(len(marker))
        return marker

    def _write(self, end: int, write: Callable[[str], None]) -> None:
        if end > self._at:
            text, self._at = self._text[self._at : end], end
            write(text)

    def _start_of_a_marker(self, markers: tuple[str, ...], beginning: re.Pattern[str], longest: int) -> int:
        """Return where the text ends with the start of a marker."""
        for found in beginning.finditer(self._text, max(self._at, len(self._text) - longest + 1)):
            rest = self._text[found.start() :]
            if any(_grows_into(rest, marker) for marker in markers):
                return found.start()
        return len(self._text)


def _grows_into(text: str, marker: str) -> bool:
    """Tell whether the text is the beginning of the marker, of which some is missing."""
    return len(text) < len(marker) and marker.startswith(text)


@functools.cache
def _patterns(markers: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str], int]:
    """Return what finds the first of the markers and what they begin with, and the length of the longest."""
    ordered = sorted(markers, key=len, reverse=True)
    characters = sorted({marker[0] for marker in markers})
    found, beginning = ("|".join(map(re.escape, texts)) for texts in (ordered, characters))
    return re.compile(found), re.compile(beginning), len(ordered[0])

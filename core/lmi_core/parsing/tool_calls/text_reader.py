"""Reading of streamed text by generators that yield while they wait for more."""

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from lmi_core.parsing.search import find_first, starts_with

T = TypeVar("T")

Waiting = Generator[None, None, T]  # yields to wait for more text, and returns what was read

ANYTHING_BUT_A_BLANK = re.compile(r"\S")


class TextReader:
    """A reader of streamed text; its results do not depend on how the text is split."""

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
        """Return the position, which `rewind` accepts until the next `forget`."""
        return self._at

    def rewind(self, mark: int) -> None:
        self.reread += self._at - mark
        self._at = mark

    def forget(self) -> None:
        """Drop the text read so far, which invalidates earlier marks."""
        self._text, self._at = self.unread, 0

    def skip(self, count: int) -> None:
        """Advance by `count` characters."""
        self._at += count

    def more(self) -> Waiting[bool]:
        """Wait for unread text; return False at the end of the text."""
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

    def read_marker(self, *markers: str) -> Waiting[str]:
        """Read the longest marker at the current position; return "" if there is none."""
        while (found := starts_with(self._text, markers, final=self.ended, start=self._at)) is None:
            yield
        self._at += len(found)
        return found

    def optional(self, *markers: str) -> Waiting[str]:
        """Read the next marker and whitespace before it; if there is none, read nothing and return ""."""
        mark = self._at
        if not markers:
            return ""
        yield from self.blanks()
        found = yield from self.read_marker(*markers)
        if not found:
            self._at = mark
        return found

    def read_until(self, *markers: str) -> Waiting[tuple[str, str]]:
        """Read through the first marker; return the text before it, and the marker, or "" at the end of the text."""
        parts: list[str] = []
        marker = yield from self.write_until(markers, parts.append)
        return "".join(parts), marker

    def write_until(
        self, markers: tuple[str, ...], write: Callable[[str], None], *, forgets: bool = False
    ) -> Waiting[str]:
        """Write the text before the first marker as soon as it is certain; read and return the marker."""
        while True:
            found = find_first(self._text, markers, final=self.ended, start=self._at)
            if found.place > self._at:
                text, self._at = self._text[self._at : found.place], found.place
                write(text)
            if found.marker or self.ended:
                self._at += len(found.marker)
                return found.marker
            if forgets:
                self.forget()
            yield

    def write_and_forget(self, markers: tuple[str, ...], write: Callable[[str], None]) -> Waiting[str]:
        """Do the same as `write_until` and forget the written text, so that the returned marker is at position 0."""
        marker = yield from self.write_until(markers, write, forgets=True)
        self.skip(-len(marker))
        self.forget()
        self.skip(len(marker))
        return marker

    def read_string(
        self, quote: str, escape: str, write: Callable[[str], None], *, forgets: bool = False
    ) -> Waiting[bool]:
        """Write the rest of a string, with its last quote, as it arrives; return False if the text ends inside it.

        The character after an `escape` is part of the string; "" means that strings have no escapes.
        """
        while found := (yield from self.write_until((quote, escape) if escape else (quote,), write, forgets=forgets)):
            write(found)
            if found == quote:
                return True
            escaped = yield from self.peek(1)
            self.skip(len(escaped))
            write(escaped)
        return False

    def read_item(
        self, end: str, opening: str, closing: str, quotes: tuple[str, ...], escape: str = ""
    ) -> Waiting[tuple[str, str]]:
        """Read through the first comma or `end` outside brackets and strings.

        Return the text before it, and the comma or end, or "" at the end of the text.
        """
        parts: list[str] = []
        depth = 0
        while True:
            found = yield from self.write_until((",", *opening, *closing, *quotes), parts.append)
            if not found or (depth == 0 and found in (",", end)):
                return "".join(parts), found
            parts.append(found)
            depth += (found in opening) - (found in closing)
            if found in quotes:
                yield from self.read_string(found, escape, parts.append)

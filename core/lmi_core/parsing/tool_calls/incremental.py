"""The common base of the parsers: a generator that reads text and writes pieces as soon as they are certain."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from lmi_core.parsing.search import unmarked
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content, Piece, ToolCallParser, coalesce
from lmi_core.parsing.tool_calls.text_reader import TextReader, Waiting

Tools = Mapping[str, Mapping[str, Any]]  # the JSON schema of the parameters, by function name


MAX_REREAD = 200_000  # bounds parsing time: after this many characters of failed calls, all text is content


class IncrementalParser(ToolCallParser):
    """A parser whose `read` is one generator over the whole text."""

    reads_marks = False  # whether `read` needs the marks of tokens

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.reader = TextReader()
        self.count = 0  # calls read so far, which is the index of the current one
        self.begun = False  # the name of the current call has been written
        self._blanks = ""  # held back: content only if more content follows, or if there is no call
        self._pieces: list[Piece] = []
        self._reading = self.read()

    @abstractmethod
    def read(self) -> Waiting[None]:
        """Read the whole text."""

    def push(self, text: str) -> list[Piece]:
        self.reader.add(text if self.reads_marks else unmarked(text))
        return self._resume()

    def finish(self) -> list[Piece]:
        self.reader.ended = True
        pieces = self._resume()
        return [*pieces, Content(self._blanks)] if self._blanks and not self.count else pieces

    def content(self, text: str) -> None:
        """Write content, but hold back trailing whitespace."""
        text = self._blanks + text
        kept = text.rstrip()
        self._blanks = text[len(kept) :]
        if kept:
            self._pieces.append(Content(kept))

    def begin_call(self, name: str, call_id: str | None = None) -> None:
        self._blanks = ""
        self.begun = True
        self._pieces.append(CallBegun(self.count, name, call_id))
        self.reader.forget()

    def arguments(self, text: str) -> None:
        """Write the next part of the current call's arguments, as JSON text."""
        if text:
            self._pieces.append(CallArguments(self.count, text))

    def end_call(self) -> None:
        self.begun = False
        self.count += 1

    def _resume(self) -> list[Piece]:
        next(self._reading, None)
        pieces, self._pieces = self._pieces, []
        return coalesce(pieces)


class MarkedParser(IncrementalParser):
    """A parser of content with a marker at the start of a call or of a list of calls."""

    def __init__(
        self,
        tools: Tools,
        markers: Sequence[str],
        *,
        ends: Sequence[str] = (),
        special: Sequence[str] = (),
    ) -> None:
        """Look for calls after `markers`; drop `ends` after a call, and `special` tokens always."""
        super().__init__(tools)
        self._markers = tuple(markers)
        self._ends = tuple(ends)
        self._special = tuple(special)

    def read(self) -> Waiting[None]:
        known = (*self._markers, *self._ends, *self._special)
        while marker := (yield from self.reader.write_and_forget(known, self.content)):
            begins = marker in self._markers and self.reader.reread < MAX_REREAD
            if not begins or not (yield from self.read_marked(marker)):
                self.leave_out(marker)
        if self.begun:
            self.end_call()

    @abstractmethod
    def read_marked(self, marker: str) -> Waiting[bool]:
        """Read the call after the marker at position 0; return False if the text is content instead."""

    def leave_out(self, marker: str) -> None:
        """Skip a marker without a call; it is content unless it must be dropped."""
        if marker in self._markers:
            self.reader.rewind(len(marker))
        if marker in self._special or (self.count and marker in self._ends):
            self._blanks = "" if self.count else self._blanks
        else:
            self.content(marker)

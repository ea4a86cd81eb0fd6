"""What the parsers share: they read a text with a generator, and write pieces while it waits for more."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from lmi_core.chats.tool_calls.parser import CallArguments, CallBegun, Content, Piece, ToolCallParser, coalesced
from lmi_core.chats.tool_calls.text_reader import TextReader, Waiting

Tools = Mapping[str, Mapping[str, Any]]  # the JSON schema of each function's parameters, by the function's name


MAX_REREAD = 200_000  # characters that turn out to be no calls, before all is content: bounds the time that it takes


class IncrementalParser(ToolCallParser):
    """A parser whose `read` is one generator over the whole text, which makes pieces as it goes."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self.reader = TextReader()
        self.count = 0  # of the calls that were read; the index of the one that is being read
        self.begun = False  # this one's name was given
        self._blanks = ""  # which are content only if more content follows, or if there is no call
        self._pieces: list[Piece] = []
        self._reading = self.read()

    @abstractmethod
    def read(self) -> Waiting[None]:
        """Read all of the text."""

    def push(self, text: str) -> list[Piece]:
        self.reader.add(text)
        return self._go_on()

    def finish(self) -> list[Piece]:
        self.reader.ended = True
        pieces = self._go_on()
        return [*pieces, Content(self._blanks)] if self._blanks and not self.count else pieces

    def content(self, text: str) -> None:
        """Write content, but for the blanks that it ends with."""
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
        """Write a further part of the arguments, as JSON text."""
        if text:
            self._pieces.append(CallArguments(self.count, text))

    def end_call(self) -> None:
        self.begun = False
        self.count += 1

    def _go_on(self) -> list[Piece]:
        next(self._reading, None)
        pieces, self._pieces = self._pieces, []
        return coalesced(pieces)


class MarkedParser(IncrementalParser):
    """Text is content up to a marker, which a call, or something around calls, begins with."""

    def __init__(
        self,
        tools: Tools,
        markers: Sequence[str],
        *,
        ends: Sequence[str] = (),
        special: Sequence[str] = (),
    ) -> None:
        """`ends` are left out once there was a call, `special` tokens always; neither begins anything."""
        super().__init__(tools)
        self._markers = tuple(markers)
        self._ends = tuple(ends)
        self._special = tuple(special)

    def read(self) -> Waiting[None]:
        known = (*self._markers, *self._ends, *self._special)
        while marker := (yield from self.reader.write_on(known, self.content)):
            begins = marker in self._markers and self.reader.reread < MAX_REREAD
            if not begins or not (yield from self.read_marked(marker)):
                self.leave_out(marker)
        if self.begun:
            self.end_call()

    @abstractmethod
    def read_marked(self, marker: str) -> Waiting[bool]:
        """Read what the marker at the position 0 begins; False if that is no call: then it is read as content."""

    def leave_out(self, marker: str) -> None:
        """Go on after a marker that begins nothing, which is content unless it has no place in a text."""
        if marker in self._markers:
            self.reader.rewind(len(marker))
        if marker in self._special or (self.count and marker in self._ends):
            self._blanks = "" if self.count else self._blanks
        else:
            self.content(marker)

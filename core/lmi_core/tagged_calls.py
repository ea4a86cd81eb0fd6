"""Tool calls in tags within other text."""

from lmi_core.json_calls import JsonCall
from lmi_core.tool_calls import Content, Piece, ToolCallParser, coalesced

OPENING_TAG = "<tool_call>"
CLOSING_TAG = "</tool_call>"


class TaggedCalls(ToolCallParser):
    """Each call is within `<tool_call>` tags; the rest is content."""

    def __init__(self) -> None:
        self._held = ""  # may turn out to be a tag
        self._blanks = ""  # which are content only if more content follows
        self._call: JsonCall | None = None
        self._count = 0

    def push(self, text: str) -> list[Piece]:
        return coalesced([piece for character in text for piece in self._push(character)])

    def finish(self) -> list[Piece]:
        call = self._call
        begun = call is not None and call.begun
        unfinished = "" if call is None or begun else OPENING_TAG + call.text
        pieces = self._text(unfinished or self._held if not begun else "")
        return pieces if begun or self._count or not self._blanks else [*pieces, Content(self._blanks)]

    def _push(self, character: str) -> list[Piece]:
        if self._call is None:
            return self._outside(character)
        if self._call.closed:
            return self._after(character)
        pieces = self._call.push(character)
        if self._call.refused:
            refused, self._call = self._call, None
            return self._text(OPENING_TAG + refused.text)
        if self._call.begun:
            self._blanks = ""
        return pieces

    def _outside(self, character: str) -> list[Piece]:
        held = self._held + character
        if OPENING_TAG.startswith(held):
            self._held = held
            if held == OPENING_TAG:
                self._held = ""
                self._call = JsonCall(self._count, None)
            return []
        self._held = ""
        if character == OPENING_TAG[0]:
            self._held = character
            return self._text(held[:-1])
        return self._text(held)

    def _after(self, character: str) -> list[Piece]:
        """Between a call's end and its closing tag, which some models leave out."""
        self._held = (self._held + character).lstrip()
        if not CLOSING_TAG.startswith(self._held):
            held, self._held = self._held, ""
            self._end_call()
            return [piece for each in held for piece in self._outside(each)]
        if self._held == CLOSING_TAG:
            self._held = ""
            self._end_call()
        return []

    def _end_call(self) -> None:
        self._call = None
        self._count += 1

    def _text(self, text: str) -> list[Piece]:
        """Content, but for the blanks that it ends with."""
        text = self._blanks + text
        kept = text.rstrip()
        self._blanks = text[len(kept) :]
        return [Content(kept)] if kept else []

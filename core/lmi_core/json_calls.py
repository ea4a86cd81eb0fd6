"""Tool calls written as JSON objects, `{"name": ..., "arguments": {...}}`, their members in either order."""

from collections.abc import Collection

from lmi_core.json_members import JsonMembers
from lmi_core.tool_calls import CallArguments, CallBegun, Content, Piece, ToolCallParser, coalesced

ARGUMENTS = ("arguments", "parameters")  # what models call the arguments of a call


class JsonCall:
    """One call."""

    def __init__(self, index: int, names: Collection[str] | None) -> None:
        self.index = index
        self.begun = False
        self.text = ""  # all that was read
        self._names = names  # of the functions that there are; None: any
        self._members = JsonMembers()
        self._arguments: str | None = None  # those that were not told of yet

    @property
    def closed(self) -> bool:
        return self._members.closed

    @property
    def refused(self) -> bool:
        """Whether this is no call after all."""
        if self.begun:
            return False
        name = self._members.values.get("name")
        if name is None:
            return self._members.broken or self.closed
        return not isinstance(name, str) or not name or (self._names is not None and name not in self._names)

    def push(self, character: str) -> list[Piece]:
        self.text += character
        member = self._members.member
        value = self._members.push(character)
        if member in ARGUMENTS and value:
            self._arguments = (self._arguments or "") + value
        return [] if self.refused else self._known()

    def _known(self) -> list[Piece]:
        name = self._members.values.get("name")
        if name is None:
            return []
        pieces: list[Piece] = []
        if not self.begun:
            self.begun = True
            pieces.append(CallBegun(self.index, str(name)))
        if self.closed and self._members.values.keys().isdisjoint(ARGUMENTS):
            self._arguments = "{}"
        if self._arguments:
            pieces.append(CallArguments(self.index, self._arguments))
            self._arguments = None
        return pieces


class JsonCalls(ToolCallParser):
    """The text is calls and what separates them; from the first other thing on it is content."""

    def __init__(self, names: Collection[str], separators: str) -> None:
        self._names = names
        self._separators = separators
        self._held = ""  # may turn out to be the start of content
        self._call: JsonCall | None = None
        self._count = 0
        self._content = False

    def push(self, text: str) -> list[Piece]:
        return coalesced([piece for character in text for piece in self._push(character)])

    def finish(self) -> list[Piece]:
        """What separates calls is content where there is no call."""
        unfinished = self._call is not None or self._count == 0
        return [Content(self._held)] if self._held and unfinished else []

    def _push(self, character: str) -> list[Piece]:
        if self._content:
            return [Content(character)]
        self._held += character
        if self._call is None:
            if character.isspace() or character in self._separators:
                return []
            self._call = JsonCall(self._count, self._names)
        pieces = self._call.push(character)
        if self._call.refused:
            held, self._held = self._held, ""
            self._content = True
            return [Content(held)]
        if self._call.begun:
            self._held = ""
        if self._call.closed:
            self._call = None
            self._count += 1
        return pieces

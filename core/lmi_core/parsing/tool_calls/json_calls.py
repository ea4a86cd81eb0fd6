"""Tool calls as JSON objects, `{"name": ..., "arguments": {...}}`, with members in either order."""

from collections.abc import Collection
from typing import Any

import orjson

from lmi_core.parsing.tool_calls.incremental import IncrementalParser
from lmi_core.parsing.tool_calls.json_members import JsonMembers
from lmi_core.parsing.tool_calls.text_reader import Waiting

NAMES = ("name", "tool_name")  # member names for a function's name
ARGUMENTS = ("arguments", "parameters", "args")  # member names for its arguments
OTHERS = ("id", "tool_call_id", "type")  # other members that a call may begin with
MEMBERS = (*NAMES, *ARGUMENTS, *OTHERS)
SEPARATORS = (",", ";")


class JsonCall:
    """A character-by-character parser of one call."""

    def __init__(self, offered: Collection[str] | None) -> None:
        """Accept only calls of the `offered` functions that start with a member of calls; with None, any object."""
        self.name: str | None = None
        self.ended = False  # the call ended without its closing brace
        self._offered = offered
        self._members = JsonMembers()
        self._held = ""  # arguments not returned yet
        self._written = False  # part of the arguments was returned

    @property
    def closed(self) -> bool:
        return self._members.closed or self.ended

    @property
    def refused(self) -> bool:
        """Whether the object is not a call after all."""
        if self.name is not None:
            return self._offered is not None and self.name not in self._offered
        return self._members.broken or self.closed or self._strange()

    def ends_before(self, character: str) -> bool:
        """Return whether the call ends before the character without its closing brace."""
        self.ended = self._members.container_ended and character not in ",}" and not character.isspace()
        return self.ended

    def push(self, character: str) -> str:
        """Return the next part of the arguments as JSON text; "" until the name is known."""
        member = self._members.member
        value = self._members.push(character)
        if value and self._written:  # the common case: the character continues the arguments
            return value if member in ARGUMENTS else ""
        if member in ARGUMENTS:
            self._held += value
            if self._members.member is None and not self._is_object():
                self._held = _object_text(self._members.values[member], self._held)
        if self.name is None and self._members.member is None:
            found = next((self._members.values[key] for key in NAMES if key in self._members.values), None)
            self.name = found if isinstance(found, str) and found else None
        return "" if self.name is None or self.refused else self._new_arguments()

    def _new_arguments(self) -> str:
        if self._members.closed and not self._written and not self._held:
            self._held = "{}"
        if not self._is_object() and not self._members.closed:
            return ""
        self._written = self._written or bool(self._held)
        text, self._held = self._held, ""
        return text

    def _is_object(self) -> bool:
        """Return whether the arguments read so far are the start of an object."""
        return self._written or self._held.startswith("{")

    def _strange(self) -> bool:
        if self._offered is None:
            return False
        first = next(iter(self._members.values), self._members.member)
        return first is not None and first not in MEMBERS


class KeyedCall(JsonCall):
    """A call written as `{name: arguments}`."""

    def push(self, character: str) -> str:
        value = self._members.push(character)
        self.name = self.name or self._members.member
        self._held += value
        return self._new_arguments()


def read_call(parser: IncrementalParser, call: JsonCall) -> Waiting[bool]:
    """Read one call; if it is not one, return False at the same position."""
    reader = parser.reader
    mark = reader.mark()
    while (yield from reader.more()):
        if parser.begun:
            reader.forget()
        for character in reader.unread:
            if call.name is not None and call.ends_before(character):
                break
            reader.skip(1)
            arguments = call.push(character)
            if call.refused:
                reader.rewind(mark)
                return False
            if call.name is not None and not parser.begun:
                parser.begin_call(call.name)
            parser.arguments(arguments)
            if call.closed:
                break
        if call.closed:
            parser.end_call()
            return True
    if not parser.begun:
        reader.rewind(mark)
    return parser.begun


def read_calls(
    parser: IncrementalParser, offered: Collection[str] | None = None, kind: type[JsonCall] = JsonCall
) -> Waiting[bool]:
    """Read one or several calls, or a list of calls; return False, at any position, if there are none."""
    reader = parser.reader
    first = parser.count
    yield from reader.blanks()
    listed = yield from reader.read_marker("[")
    after = -1
    while True:
        yield from reader.blanks()
        if (yield from reader.peek(1)) != "{" or not (yield from read_call(parser, kind(offered))):
            break
        after = reader.mark()
        yield from reader.blanks()
        yield from reader.read_marker(*SEPARATORS)
    found = parser.count > first or parser.begun
    if found and listed:
        yield from reader.read_marker("]")
    elif found and not parser.begun:
        reader.rewind(after)
    return found


def read_object(parser: IncrementalParser) -> Waiting[bool]:
    """Read the current call's arguments; return False if they are incomplete.

    Anything except an object remains content, with empty arguments.
    """
    reader = parser.reader
    yield from reader.blanks()
    if (yield from reader.peek(1)) != "{":
        if not reader.ended or reader.unread:
            parser.arguments("{}")
        return True
    value = JsonMembers()
    while (yield from reader.more()):
        reader.forget()
        text = reader.unread
        end = _end_of(value, text)
        reader.skip(len(text) if end is None else end)
        parser.arguments(text[:end])
        if end is not None:
            return True
    return False


def _end_of(value: JsonMembers, text: str) -> int | None:
    """Return the length of the object in the text, or None if it is incomplete."""
    for length, character in enumerate(text, 1):
        value.push(character)
        if value.closed:
            return length
    return None


def _object_text(value: Any, text: str) -> str:
    """Return the object of the arguments, which may be encoded as a string; "{}" without arguments."""
    if value is None:
        return "{}"
    return value if isinstance(value, str) and _is_object_text(value) else text


def _is_object_text(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False

"""Tool calls as JSON objects, `{"name": ..., "arguments": {...}}`, with members in either order."""

from collections.abc import Callable, Collection
from typing import Any

import orjson

from lmi_core.parsing.tool_calls.incremental import IncrementalParser
from lmi_core.parsing.tool_calls.text_reader import TextReader, Waiting

NAMES = ("name", "tool_name")  # member names for a function's name
ARGUMENTS = ("arguments", "parameters", "args")  # member names for its arguments
OTHERS = ("id", "tool_call_id", "type")  # other members that a call may begin with
MEMBERS = (*NAMES, *ARGUMENTS, *OTHERS)
SEPARATORS = (",", ";")
QUOTE, ESCAPE, NULL = '"', "\\", "null"
OPENING, CLOSING = ("{", "["), ("}", "]")
BRACKETS_AND_QUOTE = (*OPENING, *CLOSING, QUOTE)
AFTER_NUMBER = (",", " ", "\t", "\r", "\n")


class JsonCall:
    """A reader of one call."""

    def __init__(self, parser: IncrementalParser, offered: Collection[str] | None, keyed: bool) -> None:
        """Accept only calls of the `offered` functions that start with a member of calls; with None, any object.

        A `keyed` call is written as `{name: arguments}`.
        """
        self._parser = parser
        self._reader = parser.reader
        self._offered = offered
        self._keyed = keyed
        self._arguments = ""  # not written yet
        self._streamed = False  # the arguments are written as they arrive

    def read(self) -> Waiting[bool]:
        """Read the call; if it is not one, return False at the same position."""
        mark = self._reader.mark()
        self._reader.skip(1)
        ended = yield from self._read_members()
        if not self._parser.begun:
            self._reader.rewind(mark)
            return False
        if not ended:  # skip the rest of a damaged object
            ended = yield from read_value(self._reader, lambda _: None, depth=1)
        self._parser.arguments(self._arguments or ("{}" if ended and not self._streamed else ""))
        if ended:
            self._parser.end_call()
        return True

    def _read_members(self) -> Waiting[bool]:
        """Read the members; return False if the object is not a call, is damaged, or is incomplete."""
        reader, is_first = self._reader, True
        while True:
            yield from reader.blanks()
            if (yield from reader.read_marker("}")):
                return True
            key = yield from self._read_key()
            if key is None or (is_first and self._offered is not None and key not in MEMBERS):
                return False
            if self._keyed and is_first:
                self._begin(key)
                key = ARGUMENTS[0]
            is_first = False
            yield from reader.blanks()
            opening = yield from reader.peek(1)
            value = yield from self._read_value(key, opening)
            if value is None:
                return False
            yield from reader.blanks()
            separator = yield from reader.read_marker(",", "}")
            if not separator:  # the last brace may be missing
                return opening in OPENING and bool(reader.unread)
            if key in ARGUMENTS and value:
                self._arguments = _object_text(value)
            if key in NAMES and not self._parser.begun and not self._begin(_parse(value)):
                return False
            if separator == "}":
                return True

    def _read_key(self) -> Waiting[str | None]:
        """Read a member's name and the colon after it; return None if there is none."""
        parts: list[str] = []
        if (yield from self._reader.peek(1)) != QUOTE or not (yield from read_value(self._reader, parts.append)):
            return None
        yield from self._reader.blanks()
        colon = yield from self._reader.read_marker(":")
        return _parse("".join(parts)) if colon else None

    def _read_value(self, key: str, opening: str) -> Waiting[str | None]:
        """Read a value, and return its text, or "" if it was written; return None if it is damaged or incomplete."""
        if key in ARGUMENTS and opening == "{" and self._parser.begun:
            self._streamed = True
            return "" if (yield from read_value(self._reader, self._parser.arguments, forgets=True)) else None
        parts: list[str] = []
        whole = yield from read_value(self._reader, parts.append)
        text = "".join(parts)
        damaged = not self._parser.begun and text != NULL and _parse(text) is None
        return text if whole and not damaged else None

    def _begin(self, name: object) -> bool:
        """Begin the call of a function; return False if there is no such function."""
        if not isinstance(name, str) or not name or (self._offered is not None and name not in self._offered):
            return False
        self._parser.begin_call(name)
        return True


def read_value(
    reader: TextReader, write: Callable[[str], None], *, forgets: bool = False, depth: int = 0
) -> Waiting[bool]:
    """Read a JSON value, and write its text as it arrives; return False if the text ends before the value does.

    A `depth` of 1 means that the value's first bracket has been read.
    """
    while True:
        stops = BRACKETS_AND_QUOTE if depth else (*BRACKETS_AND_QUOTE, *AFTER_NUMBER)
        found = yield from reader.write_until(stops, write, forgets=forgets)
        depth += (found in OPENING) - (found in CLOSING)
        if not found:
            return False
        if depth < 0 or found in AFTER_NUMBER:
            reader.skip(-1)
            return True
        write(found)
        if found == QUOTE and not (yield from reader.read_string(QUOTE, ESCAPE, write, forgets=forgets)):
            return False
        if depth == 0:
            return True


def read_calls(
    parser: IncrementalParser, offered: Collection[str] | None = None, *, keyed: bool = False
) -> Waiting[bool]:
    """Read one or several calls, or a list of calls; return False, at any position, if there are none."""
    reader = parser.reader
    first = parser.count
    yield from reader.blanks()
    listed = yield from reader.read_marker("[")
    after = -1
    while True:
        yield from reader.blanks()
        if (yield from reader.peek(1)) != "{" or not (yield from JsonCall(parser, offered, keyed).read()):
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
    if (yield from reader.peek(1)) == "{":
        return (yield from read_value(reader, parser.arguments, forgets=True))
    if not reader.ended or reader.unread:
        parser.arguments("{}")
    return True


def _object_text(text: str) -> str:
    """Return the text of an object of arguments, which may be encoded as a string; "{}" for null and damaged text."""
    value = _parse(text)
    if value is None:
        return "{}"
    return value if isinstance(value, str) and isinstance(_parse(value), dict) else text


def _parse(text: str) -> Any:
    """Return the value of JSON text; None if it is damaged."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None

"""Calls of custom tools: from the arguments of a function, `{"input": "..."}`, to plain text."""

import re
from collections.abc import Collection
from dataclasses import replace

import orjson

from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, CallFilter, Piece, ToolCallParser
from lmi_handlers.fields.tool_fields import INPUT

BEGINNING = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
# Text of a JSON string up to its end, or to an escape or a surrogate pair that is incomplete
COMPLETE = re.compile(
    r"""(?: [^"\\]+ | \\[^u] | \\u(?![dD][89abAB])[0-9a-fA-F]{4} | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4} )*""",
    re.VERBOSE,
)
REST = re.compile(r'(?:[^"\\]+|\\.)*', re.DOTALL)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class InputReader:
    """A reader of one call's arguments, which returns the input as it is generated.

    Unlike a JSON parser, it accepts line breaks and invalid escapes, which models write. Arguments in another form are
    returned at the end, as they are.
    """

    def __init__(self) -> None:
        self._unread = ""
        self._begun = False
        self.ended = False  # the whole input has been read

    def push(self, arguments: str) -> str:
        if self.ended:
            return ""
        self._unread += arguments
        if not self._begun:
            beginning = BEGINNING.match(self._unread)
            if beginning is None:
                return ""
            self._begun = True
            self._unread = self._unread[beginning.end() :]
        return self._read(COMPLETE)

    def finish(self) -> str:
        """Return the rest of the input."""
        if self._begun:
            return "" if self.ended else self._read(REST)
        text, self.ended = _input_of(self._unread)
        return text

    def _read(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._unread)
        assert found is not None, "the pattern matches an empty text"
        self._unread = self._unread[found.end() :]
        self.ended = self._unread.startswith('"')
        return _decoded(found[0])


class CustomCalls(CallFilter):
    """A filter that turns the arguments in calls of these tools into plain text."""

    cut = False  # the text ended within the input of a custom tool's call

    def __init__(self, parser: ToolCallParser, names: Collection[str]) -> None:
        super().__init__(parser)
        self._names = names
        self._index = 0  # the index of the open call
        self._input: InputReader | None = None  # of the open call, if its tool is custom

    def finish(self) -> list[Piece]:
        pieces, last = super().finish(), self._input
        pieces += self._end()
        self.cut = last is not None and not last.ended
        return pieces

    def filter(self, pieces: list[Piece]) -> list[Piece]:
        converted: list[Piece] = []
        for piece in pieces:
            if isinstance(piece, CallArguments):
                converted += [piece] if self._input is None else self._part(self._input.push(piece.text))
                continue
            converted += self._end()
            if isinstance(piece, CallBegun) and piece.name in self._names:
                self._index, self._input = piece.index, InputReader()
                piece = replace(piece, plain=True)
            converted.append(piece)
        return converted

    def _part(self, text: str) -> list[Piece]:
        return [CallArguments(self._index, text)] if text else []

    def _end(self) -> list[Piece]:
        ended, self._input = self._input, None
        return self._part(ended.finish()) if ended else []


def _input_of(arguments: str) -> tuple[str, bool]:
    """Return the input in arguments that do not begin with it, or the arguments themselves unless they are cut.

    The second value is whether they are complete.
    """
    if f'{{"{INPUT}":"'.startswith("".join(arguments.split())):
        return "", False
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments, False
    if value == {}:
        return "", True
    text = value.get(INPUT) if isinstance(value, dict) else value
    return text if isinstance(text, str) else arguments, True


def _decoded(text: str) -> str:
    """Decode the escapes of a JSON string; invalid ones remain as they are."""
    if "\\" not in text:
        return text
    plain = ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else ESCAPES.get(found[2], found[0]), text)
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs

"""Tool calls written as Python: `[weather(city="Paris", days=3), clock()]`."""

import ast
import re
from collections.abc import Sequence
from math import isinf
from typing import Any

from lmi_core.parsing.tool_calls.incremental import MarkedParser, Tools
from lmi_core.parsing.tool_calls.text_reader import Waiting
from lmi_core.parsing.tool_calls.typed_values import json_text

NAME = re.compile(r"[A-Za-z_]\w*(?:[.-]\w+)*")
START_OF_A_NAME = re.compile(r"[A-Za-z_][\w.-]*\s*")
KEY = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)")
JSON_NAMES = {"null": None, "true": True, "false": False}
QUOTES = ("'''", '"""', "'", '"')
ESCAPE = "\\"
MAX_NAME_LENGTH = 128


class PythonCalls(MarkedParser):
    """A parser of calls in a list, one per line, or both, which returns each argument as soon as it is complete."""

    def __init__(
        self,
        tools: Tools,
        *,
        markers: Sequence[str] = (),
        ends: Sequence[str] = (),
        special: Sequence[str] = (),
    ) -> None:
        """Look for calls after `markers` or, without markers, for lists of calls of offered functions anywhere."""
        super().__init__(tools, markers or ("[",), ends=ends, special=special)
        self._certain = bool(markers)
        self._separator = ""  # text before the next argument
        self._places: list[str] = []  # names for positional arguments

    def read_marked(self, marker: str) -> Waiting[bool]:
        listed = marker == "["
        if not listed:
            yield from self.reader.blanks()
            listed = bool((yield from self.reader.read_marker("[")))
        first = self.count
        while (yield from self._read_call()):
            if not (yield from self.reader.optional(",", ";")) and (listed or not self._certain):
                break
        if self.count == first and not self.begun:
            return False
        if listed:
            yield from self.reader.optional("]")
        if self._certain:
            yield from self.reader.optional(*self._ends)
        return True

    def _read_call(self) -> Waiting[bool]:
        reader = self.reader
        yield from reader.blanks()
        mark = reader.mark()
        name = yield from self._read_name()
        if not name or not (self._certain or name in self.tools):
            reader.rewind(mark)
            return False
        self.begin_call(name)
        self._separator, self._places = "{", list(self.tools.get(name, {}).get("properties", {}))
        while True:
            text, end = yield from reader.read_item(")", "([{", ")]}", QUOTES, ESCAPE)
            if end and text.strip():
                self._write(text)
            if not end:
                return False
            if end == ")":
                self.arguments("{}" if self._separator == "{" else "}")
                self.end_call()
                return True

    def _read_name(self) -> Waiting[str]:
        """Read a function's name and the bracket after it; return "" if it is not a call."""
        reader = self.reader
        length = 1
        while length < MAX_NAME_LENGTH:
            text = yield from reader.peek(length)
            if text.endswith("(") and NAME.fullmatch(text[:-1].strip()):
                reader.skip(length)
                return text[:-1].strip()
            if len(text) < length or not START_OF_A_NAME.fullmatch(text):
                return ""
            length += 1
        return ""

    def _write(self, text: str) -> None:
        key = KEY.match(text)
        if key is None and not self._places:
            return self.content(text)
        name = key[1] if key else self._places[0]
        value = python_value(text[key.end() :] if key else text)
        self._places = [place for place in self._places if place != name]
        self.arguments(f"{self._separator}{json_text(name)}: {json_text(value)}")
        self._separator = ", "


def python_value(text: str) -> Any:
    """Return the value of a Python or JSON literal; the text itself if it is neither."""
    text = text.strip()
    try:
        value = _literal(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    return value


def _literal(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None):
            return _writable(node.value)
        case ast.Name(id=name) if name in JSON_NAMES:
            return JSON_NAMES[name]
        case ast.List() | ast.Tuple() | ast.Set():
            return [_literal(item) for item in node.elts]
        case ast.Dict():
            return {
                str(_literal(key)): _literal(value)
                for key, value in zip(node.keys, node.values, strict=True)
                if key is not None
            }
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() as number)):
            return _writable(-number if isinstance(node.op, ast.USub) else number)
    raise ValueError


def _writable(value: object) -> object:
    """Return the value in JSON's types. Raise ValueError for infinity, and for integers with too many digits."""
    if isinstance(value, float) and isinf(value):
        raise ValueError
    if isinstance(value, int):
        str(value)
    return value

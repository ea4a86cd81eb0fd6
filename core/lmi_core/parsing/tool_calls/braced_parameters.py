"""Tool calls in the format of Gemma's models: `call:weather{city:<escape>Paris<escape>,days:3}`."""

import re
from typing import Any

from lmi_core.parsing.tool_calls.incremental import MarkedParser, Tools
from lmi_core.parsing.tool_calls.text_reader import Waiting
from lmi_core.parsing.tool_calls.typed_values import json_text, json_value, parameter_schema, typed_value, types_of

CALL = "call:"
NAME = re.compile(r"\s*([^\s{}:]+)\s*")
OPENING = ("{", "[")
CLOSING = ("}", "]")


class BracedCalls(MarkedParser):
    """A parser of calls between `marker` and `end`, with strings in `quote`s."""

    def __init__(self, tools: Tools, marker: str, end: str, quote: str) -> None:
        super().__init__(tools, (marker,), ends=(end,), special=(end, marker))
        self._end = end
        self._quote = quote
        self._name = ""

    def read_marked(self, marker: str) -> Waiting[bool]:
        if not (yield from self.reader.optional(CALL)):
            return False
        text, bracket = yield from self.reader.read_until("{", self._end)
        name = NAME.fullmatch(text)
        if not name or not bracket:
            return False
        self._name = name[1]
        self.begin_call(name[1])
        if bracket == "{" and not (yield from self._read_parameters()):
            return True
        yield from self.reader.optional(self._end)
        self.end_call()
        return True

    def _read_parameters(self) -> Waiting[bool]:
        """Read up to the closing brace; return False if the text ends before it."""
        separator = "{"
        while True:
            text, end = yield from self._read_parameter()
            if not end:
                return False
            if text.strip():
                key, _, value = text.partition(":")
                key = key.strip().removeprefix(self._quote).removesuffix(self._quote)
                self.arguments(f"{separator}{json_text(key)}: {json_text(self._typed(key, value))}")
                separator = ", "
            if end == "}":
                self.arguments("{}" if separator == "{" else "}")
                return True

    def _read_parameter(self) -> Waiting[tuple[str, str]]:
        """Return a parameter, and the comma or brace that ends it, or "" if the text ends first."""
        parts: list[str] = []
        depth = 0
        while True:
            text, end = yield from self.reader.read_until(",", *OPENING, *CLOSING, self._quote)
            parts.append(text)
            if not end or (depth == 0 and end in ",}"):
                return "".join(parts), end
            parts.append(end)
            depth += (end in OPENING) - (end in CLOSING)
            if end == self._quote:
                text, end = yield from self.reader.read_until(self._quote)
                parts += (text, end)
                if not end:
                    return "", ""

    def _typed(self, key: str, text: str) -> Any:
        """Return the value in the type of its schema; without a schema, only quoted values are strings."""
        try:
            value = BracedValue(text.strip(), self._quote).read()
        except RecursionError:
            return text.strip()
        types = types_of(parameter_schema(self.tools.get(self._name, {}), key))
        return typed_value(value, types) if isinstance(value, str) and types else value


class BracedValue:
    """A parser of a complete value: a quoted string, an object with bare keys, a list, or another JSON value."""

    def __init__(self, text: str, quote: str) -> None:
        self._text = text
        self._quote = quote
        self._at = 0

    def read(self) -> Any:
        if self._takes(self._quote):
            return self._until_quote()
        if self._takes("{"):
            return self._members()
        if self._takes("["):
            return self._items()
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in ",}]":
            self._at += 1
        return json_value(self._text[start : self._at].strip())

    def _takes(self, what: str) -> bool:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1
        found = self._text.startswith(what, self._at)
        self._at += len(what) if found else 0
        return found

    def _until_quote(self) -> str:
        end = self._text.find(self._quote, self._at)
        text = self._text[self._at : end]
        self._at = end + len(self._quote)
        return text

    def _members(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not self._takes("}") and self._at < len(self._text):
            if self._takes(self._quote):
                key = self._until_quote()
                self._takes(":")
            else:
                key, colon, _ = self._text[self._at :].partition(":")
                self._at += len(key) + len(colon)
            members[key.strip()] = self.read()
            self._takes(",")
        return members

    def _items(self) -> list[Any]:
        items: list[Any] = []
        while not self._takes("]") and self._at < len(self._text):
            start = self._at
            items.append(self.read())
            if not self._takes(",") and self._at == start:
                break
        return items

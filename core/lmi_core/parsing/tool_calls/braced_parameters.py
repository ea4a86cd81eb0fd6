"""Tool calls in the format of Gemma's models: `call:weather{city:<escape>Paris<escape>,days:3}`."""

import re
from typing import Any

from lmi_core.parsing.tool_calls.incremental import MarkedParser, Tools
from lmi_core.parsing.tool_calls.text_reader import Waiting
from lmi_core.parsing.tool_calls.typed_values import json_text, json_value, parameter_schema, typed_value, types_of

CALL = "call:"
NAME = re.compile(r"\s*([^\s{}:]+)\s*")
BARE_NAME = re.compile(r"([{,]\s*)([^\s{}\[\],:][^{}\[\],:]*)(?=:)")
BARE_VALUE = re.compile(r"([:\[,]\s*)([^\s{}\[\],\"][^{}\[\],]*)")
LAST_COMMA = re.compile(r",(?=\s*[}\]])")


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
            text, end = yield from self.reader.read_item("}", "[{", "]}", (self._quote,))
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

    def _typed(self, key: str, text: str) -> Any:
        """Return the value in the type of its schema; without a schema, only quoted values are strings."""
        value = braced_value(text.strip(), self._quote)
        types = types_of(parameter_schema(self.tools.get(self._name, {}), key))
        return typed_value(value, types) if isinstance(value, str) and types else value


def braced_value(text: str, quote: str) -> Any:
    """Return the value of JSON whose strings have other quotes, or none; return any other text itself."""
    pieces = text.split(quote)
    for place, piece in enumerate(pieces):
        if place % 2 == 1:
            pieces[place] = json_text(piece)
            continue
        piece = LAST_COMMA.sub("", piece)
        named = BARE_NAME.sub(lambda name: name[1] + json_text(name[2].strip()), piece)
        pieces[place] = BARE_VALUE.sub(lambda value: value[1] + json_text(json_value(value[2].strip())), named)
    return json_value("".join(pieces), otherwise=text)

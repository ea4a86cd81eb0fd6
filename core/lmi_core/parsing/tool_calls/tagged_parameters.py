"""Tool calls with a tag for each parameter; its value is bare text with a type from the function's schema."""

import html
import re
from dataclasses import dataclass

from lmi_core.parsing.search import partial_marker_start
from lmi_core.parsing.tool_calls.incremental import MarkedParser, Tools
from lmi_core.parsing.tool_calls.json_calls import read_calls
from lmi_core.parsing.tool_calls.text_reader import Waiting
from lmi_core.parsing.tool_calls.typed_values import json_text, json_value, parameter_schema, typed_value, types_of

# Bounded and anchored, because an unterminated name would take quadratic time.
ATTRIBUTE = re.compile(r"""\b(\w{1,64})\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
NAME_ATTRIBUTES = ("name", "key", "tool")
TYPE_TAG = re.compile(r"arg_type>\s*([^<\s]{1,64})\s*<")
FUNCTION_NAME = re.compile(r"[^\s<>{}\"'=]+")


@dataclass(frozen=True, slots=True)
class TagForm:
    """The tags of a format; a name is the whole content of a tag, or its attribute `name`."""

    call: tuple[str, ...]  # precedes the name of a function
    name_ends: tuple[str, ...]
    call_end: str
    parameter: str  # precedes the name of a parameter
    key_end: str
    value_end: str
    value_begin: str = ""  # if a value has its own tag
    wrappers: tuple[str, ...] = ()  # before one or several calls, which may also be JSON
    ends: tuple[str, ...] = ()  # after calls
    special: tuple[str, ...] = ()  # tags to drop from content
    broken_lines: bool = False  # drop one line break before and one after a value


class TaggedCalls(MarkedParser):
    """A parser of calls in one form of tags."""

    def __init__(self, tools: Tools, form: TagForm) -> None:
        ends = (form.call_end, *form.ends)
        super().__init__(tools, (*form.wrappers, *form.call), ends=ends, special=form.special)
        self._form = form
        self._name = ""  # the name of the current call
        self._separator = ""  # text before the next parameter
        self._stray = ""  # other text inside the call: it becomes content when the call ends

    def read_marked(self, marker: str) -> Waiting[bool]:
        yield from self.reader.blanks()
        if (yield from self.reader.peek(1)) in ("{", "["):
            return (yield from read_calls(self))
        if marker in self._form.wrappers and not (yield from self.reader.read_marker(*self._form.call)):
            return False
        return (yield from self._read_call())

    def _read_call(self) -> Waiting[bool]:
        form = self._form
        text, end = yield from self.reader.read_until(*form.name_ends, form.call_end, form.parameter, *form.wrappers)
        name = _name(text)
        if end in ("", *form.wrappers) or not FUNCTION_NAME.fullmatch(name):
            return False
        if end in (form.call_end, form.parameter):
            self.reader.skip(-len(end))
        self._name, self._separator = name, "{"
        self.begin_call(name)
        while (yield from self._read_parameter()):
            pass
        stray, self._stray = self._stray, ""
        if stray.strip():
            self.content(stray)
        return True

    def _read_parameter(self) -> Waiting[bool]:
        """Read the call's next parameter; return False at the call's end."""
        form, reader = self._form, self.reader
        markers = (form.parameter, form.call_end, *self._ends, *self._markers)
        text, marker = yield from reader.read_until(*markers)
        self._stray += text if marker else text[: partial_marker_start(text, markers)]
        if marker == form.parameter:
            return (yield from self._read_value())
        if marker != form.call_end:
            reader.skip(-len(marker))
        self.arguments("{}" if self._separator == "{" else "}")
        self.end_call()
        return False

    def _read_value(self) -> Waiting[bool]:
        """Read a parameter from its name on; return False if the text ends inside it."""
        form, reader = self._form, self.reader
        key, end = yield from reader.read_until(form.key_end, form.call_end)
        if end == form.call_end:
            reader.skip(-len(end))
            return True
        kind = dict(_attributes(key))
        if form.value_begin and end:
            between, end = yield from reader.read_until(form.value_begin)
            tag = TYPE_TAG.search(between)
            kind |= {"type": tag[1]} if tag else {}
        if not end:
            return False
        types = self._types(_name(key), kind)
        value, end = yield from reader.read_until(form.value_end, form.parameter, form.call_end)
        if end != form.value_end:
            reader.skip(-len(end))
        self.arguments(f"{self._separator}{json_text(_name(key))}: {self._value(value, types, cut=not end)}")
        self._separator = ", "
        return bool(end)

    def _types(self, key: str, kind: dict[str, str]) -> set[str] | None:
        """Return the JSON types that the value may have, or None for any."""
        if kind.get("string") == "true" or kind.get("type") == "string":
            return {"string"}
        types = types_of(parameter_schema(self.tools.get(self._name, {}), key))
        return types or (None if kind.get("string") or kind.get("type") else {"string"})

    def _value(self, text: str, types: set[str] | None, *, cut: bool) -> str:
        if self._form.broken_lines:
            text = text.removeprefix("\n")
            text = text if cut else text.removesuffix("\n")
        if cut:
            return json_text(text)[:-1] if types == {"string"} else text
        return json_text(json_value(text) if types is None else typed_value(text, types))


def _attributes(tag: str) -> list[tuple[str, str]]:
    return [(found[1], html.unescape(next(filter(None, found.groups()[1:]), ""))) for found in ATTRIBUTE.finditer(tag)]


def _name(tag: str) -> str:
    """Return the name in a tag's text."""
    attributes = dict(_attributes(tag))
    given = next((attributes[key] for key in NAME_ATTRIBUTES if key in attributes), tag)
    return given.strip().strip("\"'")

"""Tool calls as a name and a JSON object, each with its own markers."""

import re
from dataclasses import dataclass

from lmi_core.parsing.tool_calls.incremental import MarkedParser, Tools
from lmi_core.parsing.tool_calls.json_calls import read_calls, read_object
from lmi_core.parsing.tool_calls.text_reader import Waiting

ANY_NAME = re.compile(r"(\S+)")


@dataclass(frozen=True, slots=True)
class SegmentForm:
    """The markers of a format, all of them special tokens, which are dropped from content."""

    call: str
    name_ends: tuple[str, ...]  # "{" is already part of the arguments
    call_end: str = ""
    kind_end: str = ""  # between the kind of call, which follows `call`, and the name
    id_begin: str = ""  # between the name and the call's id
    fence: tuple[str, str] = ("", "")  # around the arguments
    sections: tuple[str, ...] = ()  # around several calls
    id: re.Pattern[str] | None = None  # matches a name that is also the call's id
    name: re.Pattern[str] = ANY_NAME  # the first group is the function's name


class SegmentedCalls(MarkedParser):
    """A parser of one form of calls, which also accepts the JSON calls of older models in place of a name."""

    def __init__(self, tools: Tools, form: SegmentForm) -> None:
        super().__init__(tools, (form.call,), special=(form.call, *filter(None, (form.call_end, *form.sections))))
        self._form = form

    def read_marked(self, marker: str) -> Waiting[bool]:
        form, reader = self._form, self.reader
        yield from reader.blanks()
        if (yield from reader.peek(1)) in ("{", "["):
            return (yield from read_calls(self))
        if form.kind_end and (yield from reader.read_until(form.kind_end, form.call))[1] != form.kind_end:
            return False
        stops = tuple(filter(None, (*form.name_ends, form.id_begin, form.call_end, form.call)))
        text, end = yield from reader.read_until(*stops)
        name = form.name.fullmatch(text.strip())
        if name is None or end in ("", form.call):
            return False
        if end == form.id_begin:
            end = (yield from reader.read_until(*form.name_ends))[1]
        if end == "{":
            reader.skip(-1)
        self.begin_call(name[1], name[0] if form.id and form.id.fullmatch(name[0]) else None)
        yield from self._read_arguments(end)
        return True

    def _read_arguments(self, name_end: str) -> Waiting[None]:
        form, reader = self._form, self.reader
        if name_end == form.call_end:
            self.arguments("{}")
        else:
            yield from reader.optional(*filter(None, form.fence[:1]))
            if not (yield from read_object(self)):
                return
            yield from reader.optional(*filter(None, form.fence[1:]))
            yield from reader.optional(*filter(None, (form.call_end,)))
        self.end_call()

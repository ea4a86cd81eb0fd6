"""Tool calls as JSON inside other text, with or without a marker before them."""

from collections.abc import Sequence

from lmi_core.parsing.tool_calls.incremental import MarkedParser, Tools
from lmi_core.parsing.tool_calls.json_calls import read_calls
from lmi_core.parsing.tool_calls.text_reader import Waiting


class MarkedJson(MarkedParser):
    """A parser of calls after a marker, with an optional end marker: `<tool_call>{...}</tool_call>`."""

    def __init__(
        self,
        tools: Tools,
        markers: Sequence[str],
        *,
        ends: Sequence[str] = (),
        special: Sequence[str] = (),
        keyed: bool = False,
    ) -> None:
        super().__init__(tools, markers, ends=ends, special=special)
        self._keyed = keyed

    def read_marked(self, marker: str) -> Waiting[bool]:
        if not (yield from read_calls(self, keyed=self._keyed)):
            return False
        yield from self.reader.optional(*self._ends)
        return True


class BareJson(MarkedParser):
    """A parser of calls of the offered functions anywhere in the text, with an optional marker; other JSON is
    content.
    """

    def __init__(
        self, tools: Tools, *, markers: Sequence[str] = (), ends: Sequence[str] = (), special: Sequence[str] = ()
    ) -> None:
        super().__init__(tools, ("{", "[", *markers), ends=ends, special=special)

    def read_marked(self, marker: str) -> Waiting[bool]:
        if marker in "{[":
            self.reader.rewind(0)
        if not (yield from read_calls(self, self.tools)):
            return False
        if marker not in "{[":
            yield from self.reader.optional(*self._ends)
        return True

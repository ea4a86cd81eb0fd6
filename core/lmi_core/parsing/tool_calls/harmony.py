"""Tool calls in OpenAI's harmony format, as messages addressed to a function."""

from lmi_core.parsing.reasoning.harmony import (
    CHANNEL,
    CHANNEL_NAME,
    ENDS,
    MARKERS,
    MESSAGE,
    START,
    function_of,
    mark_token,
)
from lmi_core.parsing.reasoning.markers import StreamStrip
from lmi_core.parsing.search import unmarked
from lmi_core.parsing.tool_calls.incremental import IncrementalParser
from lmi_core.parsing.tool_calls.text_reader import Waiting

TO = " to="
THOUGHTS = "analysis"


class HarmonyCalls(IncrementalParser):
    """A parser that turns messages to functions into calls, drops reasoning, and returns the rest as content."""

    reads_marks = True

    def token_text(self, text: str) -> str:
        return mark_token(text)

    def read(self) -> Waiting[None]:
        self._has_text = False
        if (yield from self.reader.read_marker(TO)):  # the prompt ends inside a header
            yield from self._read_message(TO)
        while marker := (yield from self.reader.write_and_forget(MARKERS, self._write)):
            if marker in (START, CHANNEL):
                yield from self._read_message(marker)

    def _write(self, text: str) -> None:
        self._has_text = True
        self.content(text)

    def _read_message(self, header: str) -> Waiting[None]:
        """Read the rest of a message, given the start of its header."""
        text, end = yield from self.reader.read_until(MESSAGE, *ENDS)
        name, channel = function_of(header + text), CHANNEL_NAME.search(header + text)
        if end != MESSAGE:
            return
        if name:
            self.begin_call(name)
            yield from self._read_arguments()
            self.end_call()
        elif channel and channel[1] == THOUGHTS:
            _, end = yield from self.reader.read_until(START, *ENDS)
            self.reader.skip(-len(end))
        elif self._has_text:
            self.content("\n")

    def _read_arguments(self) -> Waiting[None]:
        """Read the arguments up to the end of their message, whatever they are; none are an empty object."""
        strip = StreamStrip(start=True, end=True)
        end = yield from self.reader.write_until(
            (START, *ENDS), lambda text: self.arguments(strip.push(unmarked(text))), forgets=True
        )
        if end and not strip.begun:
            self.arguments("{}")
        self.reader.skip(-len(end))

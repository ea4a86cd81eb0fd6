"""Tool calls in OpenAI's harmony format, as messages addressed to a function."""

import re

from lmi_core.parsing.reasoning.harmony import CHANNEL, CHANNEL_NAME, ENDS, MARKERS, MESSAGE, START
from lmi_core.parsing.tool_calls.incremental import IncrementalParser
from lmi_core.parsing.tool_calls.json_calls import read_object
from lmi_core.parsing.tool_calls.text_reader import Waiting

RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
TO = " to="
THOUGHTS = "analysis"


class HarmonyCalls(IncrementalParser):
    """A parser that turns messages to functions into calls, drops reasoning, and returns the rest as content."""

    def read(self) -> Waiting[None]:
        self._has_text = False
        if (yield from self.reader.read_marker(TO)):  # the prompt ends inside a header
            yield from self._read_message(TO)
        while marker := (yield from self.reader.write_and_forget(MARKERS, self._write)):
            if marker in (START, CHANNEL):
                yield from self._read_message(marker)
        if self.begun:
            self.end_call()

    def _write(self, text: str) -> None:
        self._has_text = True
        self.content(text)

    def _read_message(self, header: str) -> Waiting[None]:
        """Read the rest of a message, given the start of its header."""
        text, end = yield from self.reader.read_until(MESSAGE, *ENDS)
        recipient, channel = RECIPIENT.search(header + text), CHANNEL_NAME.search(header + text)
        if end != MESSAGE:
            return
        if recipient:
            name = recipient[1]
            self.begin_call(name)
            if (yield from read_object(self)):
                self.end_call()
        elif channel and channel[1] == THOUGHTS:
            _, end = yield from self.reader.read_until(START, *ENDS)
            self.reader.skip(-len(end))
        elif self._has_text:
            self.content("\n")

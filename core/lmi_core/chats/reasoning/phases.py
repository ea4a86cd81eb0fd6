"""Parsers that read a sequence's text in phases, one after the other."""

from collections.abc import Callable

from lmi_core.chats.reasoning.parser import ReasoningParser, SplitText

Phase = Callable[[bool], SplitText | None]  # given whether the text is complete; None: it waits for more text


class PhasedReasoning(ReasoningParser):
    """Goes on from phase to phase: each takes from the text that is held, and may set the next one."""

    def __init__(self, first: Phase) -> None:
        self._held = ""  # not told of yet
        self._phase = first

    def push(self, text: str) -> SplitText:
        self._held += text
        return self._advance(final=False)

    def finish(self) -> SplitText:
        return self._advance(final=True)

    def _advance(self, final: bool) -> SplitText:
        reasoning, content = "", ""
        while self._held and (part := self._phase(final)) is not None:
            reasoning += part.reasoning
            content += part.content
        return SplitText(reasoning, content)

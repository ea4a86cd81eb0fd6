"""Parsers that read a sequence's text in consecutive phases."""

from collections.abc import Callable

from lmi_core.parsing.reasoning.parser import ReasoningParser, SplitText

Phase = Callable[[bool], SplitText | None]  # takes whether the text is complete; returns None to wait for more


class PhasedReasoning(ReasoningParser):
    """A parser whose phases each consume from the held text and may set the next phase."""

    def __init__(self, first: Phase) -> None:
        self._held = ""  # text not returned yet
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

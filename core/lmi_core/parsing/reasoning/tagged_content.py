"""Reasoning kept in the content, for clients that parse its tags themselves."""

from lmi_core.parsing.reasoning.parser import AnswerContext, ReasoningFormat, ReasoningParser, SplitText

TAG = "<think>"


class TaggedContent(ReasoningFormat):
    """A parser that prefixes the content with the tag at the end of the prompt."""

    def reads(self, special_token: str) -> bool:
        return special_token in ("<think>", "</think>")

    def new_parser(self, context: AnswerContext) -> ReasoningParser:
        return _Prefix("" if context.continued else TAG)

    def close(self, prompt: str) -> str:
        return f"{prompt.rstrip()}\n</think>\n\n" if prompt.rstrip().endswith(TAG) else prompt


class _Prefix(ReasoningParser):
    inside = False
    undecided = False

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def push(self, text: str) -> SplitText:
        tag, self._tag = self._tag, ""
        return SplitText(content=tag + text)

    def finish(self) -> SplitText:
        return self.push("")

"""Reasoning and content in a sequence's tokens."""

from lmi_core.generation.output import Token
from lmi_core.generation.tokenizer import Tokenizer
from lmi_core.parsing.reasoning.parser import AnswerContext, ReasoningFormat, ReasoningParser, SplitText


class ReasoningReader:
    """A splitter of a sequence's tokens into reasoning and content, with a count of the reasoning tokens."""

    def __init__(self, parser: ReasoningParser, reasoning_format: ReasoningFormat, tokenizer: Tokenizer) -> None:
        self.num_tokens = 0  # tokens of the reasoning, including its markers
        self._parser = parser
        self._format = reasoning_format
        self._tokenizer = tokenizer
        self._num_undecided = 0

    def read(self, token: Token) -> SplitText:
        parser = self._parser
        was_inside = parser.inside
        part = parser.push(self._text(token))
        if was_inside or parser.inside or part.reasoning:
            self.num_tokens += 1 + self._num_undecided
        self._num_undecided = self._num_undecided + 1 if parser.undecided else 0
        return part

    def finish(self) -> SplitText:
        return self._parser.finish()

    def _text(self, token: Token) -> str:
        """Return the token's text or, for a special token of a marker, the marker's text."""
        text = token.text
        if not text and token.special:
            text = self._tokenizer.token_bytes(token.id).decode(errors="replace")
            text = text if text and self._format.reads(text) else ""
        return self._format.token_text(text)


class Reasoning:
    """A factory of readers, one for each sequence of a chat."""

    def __init__(self, reasoning_format: ReasoningFormat, tokenizer: Tokenizer, context: AnswerContext) -> None:
        self._format = reasoning_format
        self._tokenizer = tokenizer
        self._context = context

    def new_reader(self) -> ReasoningReader:
        return ReasoningReader(self._format.new_parser(self._context), self._format, self._tokenizer)

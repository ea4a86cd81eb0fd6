"""One sequence's tokens, read as reasoning and content."""

from collections.abc import Callable

from lmi_core.chats.reasoning.parser import AnswerContext, ReasoningFormat, ReasoningParser, SplitText
from lmi_core.generation import Token
from lmi_core.tokenizer import Tokenizer


class ReasoningReader:
    """Separates a sequence's reasoning from its content, token by token, and counts the tokens of the reasoning."""

    def __init__(self, parser: ReasoningParser, reads: Callable[[str], bool], tokenizer: Tokenizer) -> None:
        self.num_tokens = 0  # of the reasoning, its markers included
        self._parser = parser
        self._reads = reads
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
        """Its text; of a special token, which has none, the marker that it is."""
        if token.text or not token.special:
            return token.text
        text = self._tokenizer.token_bytes(token.id).decode(errors="replace")
        return text if text and self._reads(text) else ""


class Reasoning:
    """Makes a reader for each sequence of one chat."""

    def __init__(self, reasoning_format: ReasoningFormat, tokenizer: Tokenizer, context: AnswerContext) -> None:
        self._format = reasoning_format
        self._tokenizer = tokenizer
        self._context = context

    def new_reader(self) -> ReasoningReader:
        return ReasoningReader(self._format.new_parser(self._context), self._format.reads, self._tokenizer)

"""The pieces of a generated sequence: reasoning, content and tool calls."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from uuid import uuid4

from lmi_core.generation.output import NO_TOKEN, GenerationStep, Token
from lmi_core.parsing.reasoning.parser import SplitText
from lmi_core.parsing.reasoning.reader import ReasoningReader
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content, Piece, ToolCallParser


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """Text of the reasoning."""

    text: str


AnswerPiece = ReasoningText | Piece


class AnswerReader:
    """A splitter of one sequence's tokens into pieces; returned pieces are final.

    The pieces of a call follow each other: reasoning that begins before the call's end is held back until then.
    """

    def __init__(
        self, parser: ToolCallParser | None, reasoning: ReasoningReader | None, include_reasoning: bool = True
    ) -> None:
        self._parser = parser
        self._reasoning = reasoning
        self._include_reasoning = include_reasoning
        self._calling = False  # the last piece belongs to a call, which may continue
        self._held = ""  # reasoning to return after the call
        self.all_content = parser is None and reasoning is None  # whether the text of each token is content

    @property
    def num_reasoning_tokens(self) -> int:
        """The number of tokens read so far that belong to the reasoning, including its markers."""
        return self._reasoning.num_tokens if self._reasoning else 0

    def read(self, token: Token, last: bool) -> list[AnswerPiece]:
        """Return the pieces that a token completes; `last` means that it ends the sequence."""
        if self._reasoning is None:
            return self._content(self._text((token,)), last)
        part = SplitText() if token is NO_TOKEN else self._reasoning.read(token)
        end = self._reasoning.finish() if last else SplitText()
        reasoning = part.reasoning + end.reasoning
        return self._join(reasoning, self._content(part.content + end.content, last), last)

    def read_step(self, step: GenerationStep) -> list[AnswerPiece]:
        """Return the pieces that a step of the sequence completes."""
        ended = step.finish_reason is not None
        tokens = step.tokens or ([NO_TOKEN] if ended else [])
        last = len(tokens) if ended else -1
        return [piece for place, token in enumerate(tokens, 1) for piece in self.read(token, place == last)]

    def read_all(self, tokens: Iterable[Token]) -> list[AnswerPiece]:
        """Return the pieces of a whole sequence, which are longer than those of `read`; this is faster."""
        if self._reasoning is None:
            return self._content(self._text(tokens), last=True)
        parts = [*(self._reasoning.read(token) for token in tokens if token is not NO_TOKEN), self._reasoning.finish()]
        pieces: list[AnswerPiece] = []
        for is_reasoning, run in groupby(_texts(parts), key=itemgetter(0)):
            text = "".join([text for _, text in run])
            if not is_reasoning:
                pieces += self._join("", self._content(text, last=False), last=False)
            else:
                pieces += self._join(text, [], last=False)
        return [*pieces, *self._join("", self._content("", last=True), last=True)]

    def _join(self, reasoning: str, pieces: list[AnswerPiece], last: bool) -> list[AnswerPiece]:
        """Return the reasoning and the pieces, the rest of an open call first."""
        if not self._include_reasoning:
            return pieces
        self._held += reasoning
        place = 0
        if self._calling:
            place = next((at for at, piece in enumerate(pieces) if not isinstance(piece, CallArguments)), len(pieces))
            if place == len(pieces) and not last:
                return pieces
        self._calling = bool(pieces) and not isinstance(pieces[-1], Content)
        text, self._held = self._held, ""
        return [*pieces[:place], ReasoningText(text), *pieces[place:]] if text else pieces

    def _text(self, tokens: Iterable[Token]) -> str:
        texts = [token.text for token in tokens]
        return "".join(texts if self._parser is None else map(self._parser.token_text, texts))

    def _content(self, text: str, last: bool) -> list[AnswerPiece]:
        if self._parser is None:
            return [Content(text)] if text else []
        return [*self._parser.push(text), *(self._parser.finish() if last else [])]


def _texts(parts: Iterable[SplitText]) -> Iterator[tuple[bool, str]]:
    """Yield the texts in order, each with whether it belongs to the reasoning."""
    for part in parts:
        if part.reasoning:
            yield True, part.reasoning
        if part.content:
            yield False, part.content


def call_id(begun: CallBegun) -> str:
    """Return the id of a tool call; a new one if the model's format has none."""
    return begun.id or f"call_{uuid4().hex[:24]}"

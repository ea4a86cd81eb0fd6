"""The interface of tool call parsers, which read text as it is generated."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text outside tool calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """The beginning of a call, whose arguments follow."""

    index: int
    name: str
    id: str | None = None  # the call's id, set if the model's chat template requires a certain form
    plain: bool = False  # whether the arguments that follow are plain text


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next part of a call's arguments, as JSON text unless the call is `plain`."""

    index: int
    text: str


CallId = Callable[[str, int], str]  # makes a call's id from the function's name and the call's index

Piece = Content | CallBegun | CallArguments


class ToolCallParser(ABC):
    """A parser of one sequence's tool calls; returned pieces are final."""

    def token_text(self, text: str) -> str:
        """Return the text to push for a token with this text."""
        return text

    @abstractmethod
    def push(self, text: str) -> list[Piece]:
        """Process generated text, and return the pieces that are final now."""

    @abstractmethod
    def finish(self) -> list[Piece]:
        """Return the remaining pieces, at the end of the generated text."""


class NamedCall(ToolCallParser):
    """A parser of text that consists only of one function's arguments."""

    def __init__(self, name: str) -> None:
        self._begin: list[Piece] = [CallBegun(0, name)]

    def push(self, text: str) -> list[Piece]:
        pieces, self._begin = self._begin, []
        return [*pieces, CallArguments(0, text)] if text else pieces

    def finish(self) -> list[Piece]:
        return self.push("")


class CallFilter(ToolCallParser):
    """A filter of another parser's pieces."""

    def __init__(self, parser: ToolCallParser) -> None:
        self._parser = parser

    def token_text(self, text: str) -> str:
        return self._parser.token_text(text)

    def push(self, text: str) -> list[Piece]:
        return self.filter(self._parser.push(text))

    def finish(self) -> list[Piece]:
        return self.filter(self._parser.finish())

    @abstractmethod
    def filter(self, pieces: list[Piece]) -> list[Piece]:
        """Return the pieces that replace these."""


class FirstCall(CallFilter):
    """A filter that drops every call but the first, for clients that allow only one."""

    def filter(self, pieces: list[Piece]) -> list[Piece]:
        return [piece for piece in pieces if isinstance(piece, Content) or piece.index == 0]


class IdentifiedCalls(CallFilter):
    """A filter that adds missing ids in the form that the model's chat template requires."""

    def __init__(self, parser: ToolCallParser, call_id: CallId) -> None:
        super().__init__(parser)
        self._call_id = call_id

    def filter(self, pieces: list[Piece]) -> list[Piece]:
        return [self._add_id(piece) for piece in pieces]

    def _add_id(self, piece: Piece) -> Piece:
        if not isinstance(piece, CallBegun) or piece.id is not None:
            return piece
        return CallBegun(piece.index, piece.name, self._call_id(piece.name, piece.index))


def coalesce(pieces: list[Piece]) -> list[Piece]:
    """Join adjacent pieces of the same kind."""
    together: list[Piece] = []
    for piece in pieces:
        last = together[-1] if together else None
        if isinstance(piece, Content) and isinstance(last, Content):
            together[-1] = Content(last.text + piece.text)
        elif isinstance(piece, CallArguments) and isinstance(last, CallArguments) and piece.index == last.index:
            together[-1] = CallArguments(piece.index, last.text + piece.text)
        else:
            together.append(piece)
    return together

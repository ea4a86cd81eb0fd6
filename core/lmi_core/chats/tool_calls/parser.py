"""Tool calls in what a model writes, found while it is written."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """Text that is no part of a tool call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    index: int
    name: str
    id: str | None = None  # where the model's chat template asks for one of a certain form


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A further part of a call's arguments, as JSON text."""

    index: int
    text: str


CallId = Callable[[str, int], str]  # of the call of a function, by its name and the call's index

Piece = Content | CallBegun | CallArguments


class ToolCallParser(ABC):
    """One sequence's; what it returned is final."""

    @abstractmethod
    def push(self, text: str) -> list[Piece]:
        """What is known now that the model has written this text too."""

    @abstractmethod
    def finish(self) -> list[Piece]:
        """What is left now that the model has ended."""


class NamedCall(ToolCallParser):
    """All of the text is the arguments of one function."""

    def __init__(self, name: str) -> None:
        self._begin: list[Piece] = [CallBegun(0, name)]

    def push(self, text: str) -> list[Piece]:
        pieces, self._begin = self._begin, []
        return [*pieces, CallArguments(0, text)] if text else pieces

    def finish(self) -> list[Piece]:
        return self.push("")


class FirstCall(ToolCallParser):
    """Leaves out every call but the first, where a client wants one at most."""

    def __init__(self, parser: ToolCallParser) -> None:
        self._parser = parser

    def push(self, text: str) -> list[Piece]:
        return self._first(self._parser.push(text))

    def finish(self) -> list[Piece]:
        return self._first(self._parser.finish())

    @staticmethod
    def _first(pieces: list[Piece]) -> list[Piece]:
        return [piece for piece in pieces if isinstance(piece, Content) or piece.index == 0]


class IdentifiedCalls(ToolCallParser):
    """Gives the calls ids of the form that a model's chat template takes, where the model wrote none."""

    def __init__(self, parser: ToolCallParser, call_id: CallId) -> None:
        self._parser = parser
        self._call_id = call_id

    def push(self, text: str) -> list[Piece]:
        return [self._identified(piece) for piece in self._parser.push(text)]

    def finish(self) -> list[Piece]:
        return [self._identified(piece) for piece in self._parser.finish()]

    def _identified(self, piece: Piece) -> Piece:
        if not isinstance(piece, CallBegun) or piece.id is not None:
            return piece
        return CallBegun(piece.index, piece.name, self._call_id(piece.name, piece.index))


def coalesced(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring texts as one."""
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

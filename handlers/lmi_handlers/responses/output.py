"""The output of a response: items made from the pieces of one sequence."""

from collections.abc import Iterable, Mapping

from lmi_core.generation.output import Token
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content
from lmi_handlers.chat.pieces import AnswerPiece, AnswerReader, ReasoningText, call_id
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.responses.output_items import CallOutput, MessageOutput, OutputItem, PartItem, ReasoningOutput


class ResponseOutput:
    """The items of one sequence so far. Its methods return the events that they cause."""

    def __init__(self, reader: AnswerReader, functions: Mapping[str, JsonObject]) -> None:
        """Set the members in calls of functions whose names in the chat differ from the client's."""
        self._reader = reader
        self._functions = functions
        self._done: list[JsonObject] = []
        self.item_ids: list[str] = []
        self._open: OutputItem | None = None
        self._waiting: list[JsonObject] = []  # log probabilities of tokens not yet in a delta

    def items(self, status: str) -> list[JsonObject]:
        """Return the items so far, an unfinished one with this status."""
        return [*self._done, self._open.whole(status)] if self._open else self._done

    def read(self, token: Token, last: bool, log_probs: list[JsonObject]) -> list[JsonObject]:
        """Process a token, with its log probabilities if the client asked for them."""
        counted = self._reader.num_reasoning_tokens
        pieces = self._reader.read(token, last)
        if self._reader.num_reasoning_tokens > counted:  # tokens that were undecided also belong to it
            ends_in_content = any(isinstance(piece, Content) for piece in pieces)
            self._waiting = log_probs if ends_in_content else []
        else:
            self._waiting += log_probs
        return [event for piece in pieces for event in self._piece(piece)]

    def read_all(self, tokens: Iterable[Token]) -> None:
        """Process all tokens of the sequence together, without log probabilities."""
        for piece in self._reader.read_all(tokens):
            self._piece(piece)

    def end(self, status: str) -> list[JsonObject]:
        """End the last item; an answer without any is an empty message."""
        events = [] if self.item_ids else self._begin(MessageOutput(0))
        if self._waiting and isinstance(self._open, MessageOutput):  # of tokens without text, such as the last one
            events.append(self._open.grow("", self._take_waiting()))
        return events + self._end(status)

    def _piece(self, piece: AnswerPiece) -> list[JsonObject]:
        match piece:
            case ReasoningText(text):
                return self._part(ReasoningOutput, text, [])
            case Content(text):
                return self._part(MessageOutput, text, self._take_waiting())
            case CallBegun():
                self._waiting = []
                function = self._functions.get(piece.name, {"name": piece.name})
                return self._begin(CallOutput(len(self.item_ids), function, call_id(piece)))
            case CallArguments(_, text):
                assert isinstance(self._open, CallOutput), "a parser returns the calls one at a time"
                self._waiting = []
                return [self._open.grow(text)]

    def _part(self, kind: type[PartItem], text: str, log_probs: list[JsonObject]) -> list[JsonObject]:
        events = [] if isinstance(self._open, kind) else self._begin(kind(len(self.item_ids)))
        assert isinstance(self._open, kind)
        return [*events, self._open.grow(text, log_probs)]

    def _begin(self, item: OutputItem) -> list[JsonObject]:
        events = self._end("completed")
        self._open = item
        self.item_ids.append(item.id)
        return events + item.begin()

    def _end(self, status: str) -> list[JsonObject]:
        if self._open is None:
            return []
        item, self._open = self._open, None
        self._done.append(item.whole(status))
        return item.end(status)

    def _take_waiting(self) -> list[JsonObject]:
        waiting, self._waiting = self._waiting, []
        return waiting

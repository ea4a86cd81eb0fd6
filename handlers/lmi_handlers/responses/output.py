"""The output of a response: items made from the pieces of one sequence."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar
from uuid import uuid4

import orjson

from lmi_core.generation.output import Token
from lmi_core.parsing.tool_calls.parser import CallArguments, CallBegun, Content
from lmi_handlers.chat.pieces import AnswerPiece, AnswerReader, ReasoningText, call_id
from lmi_handlers.chat.schema import JsonObject

UNNUMBERED = -1  # the `sequence_number` of an event until it is sent


class OutputItem(ABC):
    """An item that grows."""

    prefix: ClassVar[str]  # prefix of its id

    def __init__(self, index: int) -> None:
        self.id = f"{self.prefix}_{uuid4().hex}"
        self.place = {"item_id": self.id, "output_index": index}
        self._index = index
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @abstractmethod
    def begin(self) -> list[JsonObject]:
        """Return the events of an empty item."""

    @abstractmethod
    def end(self, status: str) -> list[JsonObject]:
        """Return the events of the complete item."""

    @abstractmethod
    def whole(self, status: str) -> JsonObject:
        """Return the item generated so far."""

    def added(self, item: JsonObject) -> JsonObject:
        return event("output_item.added", {"output_index": self._index, "item": item})

    def done(self, status: str) -> JsonObject:
        return event("output_item.done", {"output_index": self._index, "item": self.whole(status)})


class PartItem(OutputItem):
    """An item whose content is one part with a text."""

    text_type: ClassVar[str]  # the type of the part, also used in the names of its events

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.place["content_index"] = 0
        self._delta = f"response.{self.text_type}.delta"

    @abstractmethod
    def item(self, status: str, content: list[JsonObject]) -> JsonObject:
        """Return the item with this content."""

    def part(self) -> JsonObject:
        return {"type": self.text_type, "text": self.text}

    def further(self, log_probs: list[JsonObject]) -> JsonObject:
        """Return the members of the text's events, without the text."""
        return {}

    def begin(self) -> list[JsonObject]:
        return [
            self.added(self.item("in_progress", [])),
            event("content_part.added", {**self.place, "part": self.part()}),
        ]

    def grow(self, text: str, log_probs: list[JsonObject]) -> JsonObject:
        self._texts.append(text)
        delta = {"type": self._delta, "sequence_number": UNNUMBERED, **self.place, "delta": text}
        return delta | further if (further := self.further(log_probs)) else delta

    def end(self, status: str) -> list[JsonObject]:
        part = self.part()
        log_probs = part.get("logprobs", [])
        return [
            event(f"{self.text_type}.done", {**self.place, "text": part["text"], **self.further(log_probs)}),
            event("content_part.done", {**self.place, "part": part}),
            self.done(status),
        ]

    def whole(self, status: str) -> JsonObject:
        return self.item(status, [self.part()])


class ReasoningOutput(PartItem):
    prefix = "rs"
    text_type = "reasoning_text"

    def item(self, status: str, content: list[JsonObject]) -> JsonObject:
        base = {"id": self.id, "type": "reasoning", "status": status}
        return base | {"summary": [], "content": content, "encrypted_content": None}


class MessageOutput(PartItem):
    prefix = "msg"
    text_type = "output_text"

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._log_probs: list[JsonObject] = []

    def item(self, status: str, content: list[JsonObject]) -> JsonObject:
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}

    def part(self) -> JsonObject:
        return super().part() | {"annotations": [], "logprobs": self._log_probs}

    def further(self, log_probs: list[JsonObject]) -> JsonObject:
        return {"logprobs": log_probs}

    def grow(self, text: str, log_probs: list[JsonObject]) -> JsonObject:
        self._log_probs += log_probs
        return super().grow(text, log_probs)


class CallOutput(OutputItem):
    """A call of a function."""

    prefix = "fc"
    type: ClassVar[str] = "function_call"
    member: ClassVar[str] = "arguments"  # the member for its text, also used in the names of its events

    def __init__(self, index: int, function: JsonObject, call_id: str) -> None:
        super().__init__(index)
        self._call = {"call_id": call_id, **function}

    def begin(self) -> list[JsonObject]:
        return [self.added(self.whole("in_progress"))]

    def grow(self, text: str) -> list[JsonObject]:
        self._texts.append(text)
        return [event(f"{self.type}_{self.member}.delta", {**self.place, "delta": text})]

    def end(self, status: str) -> list[JsonObject]:
        call = {"name": self._call["name"], self.member: self.text}
        return [event(f"{self.type}_{self.member}.done", {**self.place, **call}), self.done(status)]

    def whole(self, status: str) -> JsonObject:
        return {"id": self.id, "type": self.type, "status": status, **self._call, self.member: self.text}


class CustomCallOutput(CallOutput):
    """A call of a custom tool, whose input is plain text."""

    prefix = "ctc"
    type = "custom_tool_call"
    member = "input"


class SearchCallOutput(CallOutput):
    """A call of the client's search for tools, whose arguments are not text but JSON, complete at its end."""

    prefix = "tsc"
    type = "tool_search_call"

    def grow(self, text: str) -> list[JsonObject]:
        super().grow(text)
        return []

    def end(self, status: str) -> list[JsonObject]:
        return [self.done(status)]

    def whole(self, status: str) -> JsonObject:
        text = self.text or "{}"
        try:
            is_object = isinstance(orjson.loads(text), dict)
        except orjson.JSONDecodeError:  # incomplete, or the model's mistake
            is_object = False
        # An object stays as it is: it may have larger numbers and deeper values than orjson writes.
        return super().whole(status) | {"arguments": orjson.Fragment(text) if is_object else text}


def event(kind: str, members: JsonObject) -> JsonObject:
    return {"type": f"response.{kind}", "sequence_number": UNNUMBERED, **members}


class ResponseOutput:
    """The items of one sequence so far. Its methods return the events that they cause."""

    def __init__(self, reader: AnswerReader, functions: Mapping[str, JsonObject]) -> None:
        """Set the members in calls of tools whose names in the chat differ from the client's."""
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
                kind = CustomCallOutput if piece.plain else SearchCallOutput if "execution" in function else CallOutput
                return self._begin(kind(len(self.item_ids), function, call_id(piece)))
            case CallArguments(_, text):
                assert isinstance(self._open, CallOutput), "a parser returns the calls one at a time"
                self._waiting = []
                return self._open.grow(text)

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

"""The items of a response's output while they are generated, and their events."""

from abc import ABC, abstractmethod
from typing import ClassVar
from uuid import uuid4

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
    prefix = "fc"

    def __init__(self, index: int, function: JsonObject, call_id: str) -> None:
        super().__init__(index)
        self._call = {"call_id": call_id, **function}

    def begin(self) -> list[JsonObject]:
        return [self.added(self.whole("in_progress"))]

    def grow(self, text: str) -> JsonObject:
        self._texts.append(text)
        return event("function_call_arguments.delta", {**self.place, "delta": text})

    def end(self, status: str) -> list[JsonObject]:
        call = {"name": self._call["name"], "arguments": self.text}
        return [event("function_call_arguments.done", {**self.place, **call}), self.done(status)]

    def whole(self, status: str) -> JsonObject:
        return {"id": self.id, "type": "function_call", "status": status, **self._call, "arguments": self.text}


def event(kind: str, members: JsonObject) -> JsonObject:
    return {"type": f"response.{kind}", "sequence_number": UNNUMBERED, **members}

"""Conversion of a conversation's items into the messages of a chat."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from lmi_handlers.chat.messages import ContentPart, FunctionCall, Message, ToolCall
from lmi_handlers.responses.history import PlacedItem
from lmi_handlers.responses.items import (
    CallItem,
    FunctionOutputItem,
    HostedCallItem,
    InputPart,
    MessageItem,
    ReasoningItem,
)


class PlacedMessage(NamedTuple):
    """A message, and its content's field in the request."""

    message: Message
    field: str


class AssistantMessage:
    """A message of the assistant, assembled from the items of an answer."""

    def __init__(self, field: str) -> None:
        self.field = field
        self._reasoning: list[str] = []
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []

    def takes(self, item: MessageItem | ReasoningItem | CallItem) -> bool:
        """Return whether the item belongs to this message; if it has calls, all items up to their results do."""
        if isinstance(item, CallItem) or self._calls:
            return True
        return not self._texts and (isinstance(item, MessageItem) or not self._reasoning)

    def add(self, item: MessageItem | ReasoningItem | CallItem) -> None:
        match item:
            case ReasoningItem():
                self._reasoning.append(item.written)
            case MessageItem():
                self._texts += [part.written for part in item.content]
            case _:
                call = FunctionCall(name=item.name_in_chat, arguments=item.arguments)
                self._calls.append(ToolCall(id=item.call_id, function=call))

    def placed(self) -> PlacedMessage:
        members: dict[str, Any] = {"role": "assistant", "tool_calls": self._calls or None}
        if self._texts:
            members["content"] = [ContentPart(type="text", text="".join(self._texts))]
        if any(self._reasoning):
            members["reasoning"] = "".join(self._reasoning)
        return PlacedMessage(Message.model_validate(members), self.field)


def chat_messages(items: Iterable[PlacedItem], instructions: str | None) -> list[PlacedMessage]:
    """Return the messages; items of one answer (reasoning, text, calls) become one message of the assistant."""
    messages: list[PlacedMessage] = []
    if instructions:
        messages.append(PlacedMessage(_message("system", [_text(instructions)]), "instructions"))
    answer: AssistantMessage | None = None
    for item, field in items:
        if isinstance(item, HostedCallItem) or (isinstance(item, ReasoningItem) and not item.written):
            continue
        if not isinstance(item, FunctionOutputItem) and (not isinstance(item, MessageItem) or _is_text_answer(item)):
            if answer is None or not answer.takes(item):
                messages += [answer.placed()] if answer else []
                answer = AssistantMessage(field)
            answer.add(item)
            continue
        messages += [answer.placed()] if answer else []
        answer = None
        messages.append(_placed(item, field))
    return [*messages, answer.placed()] if answer else messages


def _is_text_answer(item: MessageItem) -> bool:
    return item.role == "assistant" and all(part.type != "input_image" for part in item.content)


def _placed(item: MessageItem | FunctionOutputItem, field: str) -> PlacedMessage:
    if isinstance(item, MessageItem):
        message = _message(item.role, item.content)
        return PlacedMessage(message, f"{field}.content")
    message = _message("tool", item.output, tool_call_id=item.call_id)
    return PlacedMessage(message, f"{field}.output")


def _text(text: str) -> InputPart:
    return InputPart(type="input_text", text=text)


def _message(role: str, parts: Iterable[InputPart], **further: str) -> Message:
    return Message.model_validate({"role": role, "content": [part.for_chat() for part in parts], **further})

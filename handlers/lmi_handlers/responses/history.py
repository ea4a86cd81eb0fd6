"""The items of a conversation, those of the continued responses first, and the messages that they become."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter

from lmi_core.calls.conversations import Turn
from lmi_core.errors import InvalidPayload, PayloadTooLarge, ResponseNotFound
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.messages import ContentPart, FunctionCall, Message, ToolCall
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.process.front import elsewhere
from lmi_handlers.responses.items import (
    AdditionalToolsItem,
    CallItem,
    HostedCallItem,
    InputPart,
    Item,
    ItemReference,
    Known,
    MessageItem,
    ReasoningItem,
    ResultItem,
)
from lmi_handlers.responses.request import ResponsesRequest

PREVIOUS = "previous_response_id"

ITEMS: TypeAdapter[list[Item]] = TypeAdapter(list[Item])


class PlacedItem(NamedTuple):
    """An item, and its field and index in the request."""

    item: Known
    field: str

    @property
    def is_new(self) -> bool:
        """Whether it is the request's own, not part of a continued response."""
        return not self.field.startswith(PREVIOUS)


def previous_turn(payload: ResponsesRequest, model: ServedModel, key: str | None) -> Turn | None:
    """Return the stored turn that the request continues, which must belong to the client's API key, if any.

    Raise ResponseNotFound if it is not stored, and PayloadTooLarge if its conversation is too long for a request.
    """
    if payload.previous_response_id is None:
        return None
    turn = model.conversations.find(payload.previous_response_id, key)
    if turn is None:
        given = quote(payload.previous_response_id)
        raise ResponseNotFound(f"Previous response with id {given} not found{_lost_reason(model)}", PREVIOUS)
    size = sum(len(each.question) + len(each.answer) for each in turn.conversation())
    if size > (limit := model.server.max_request_size):
        raise PayloadTooLarge(
            f"`{PREVIOUS}` must belong to a conversation of at most {limit} bytes (max_request_size). Given: {size}"
        )
    return turn


def conversation(
    payload: ResponsesRequest, previous: Turn | None, model: ServedModel, key: str | None
) -> list[PlacedItem]:
    """Return all items of the conversation, for the client with this API key, if any.

    Raise ResponseNotFound for a reference to an item that is not stored, and InvalidPayload for a result without a
    call.
    """
    past = [PlacedItem(item, f"{PREVIOUS}.{index}") for index, item in enumerate(_parse(past_items(previous)))]
    own = [
        PlacedItem(_resolve(item, place, model, key) if isinstance(item, ItemReference) else item, place)
        for place, item in ((f"input.{index}", item) for index, item in enumerate(payload.input))
    ]
    _check_results([*past, *own])
    return [*past, *own]


def past_items(turn: Turn | None) -> list[JsonObject]:
    """Return the items of a turn and of earlier ones, in their listed form."""
    items: list[JsonObject] = []
    for each in turn.conversation() if turn else ():
        items += orjson.loads(each.question)
        items += orjson.loads(each.answer)["output"]
    return items


def _parse(items: Sequence[JsonObject]) -> list[Known]:
    return [item for item in ITEMS.validate_python(items) if not isinstance(item, ItemReference)]


def _resolve(reference: ItemReference, place: str, model: ServedModel, key: str | None) -> Known:
    turn = model.conversations.owner(reference.id, key)
    if turn is None:
        raise ResponseNotFound(f"Item with id {quote(reference.id)} not found{_lost_reason(model)}", f"{place}.id")
    (found,) = _parse([item for item in orjson.loads(turn.answer)["output"] if item["id"] == reference.id])
    return found


def _lost_reason(model: ServedModel) -> str:
    if model.conversations.limit == 0:
        return ": option.response_store_size=0 stores no responses"
    reasons = f"it does not belong to model `{model.name}`, was not stored, was deleted, or was removed for newer ones"
    return f": {reasons}{elsewhere()}"


def _check_results(items: Iterable[PlacedItem]) -> None:
    """Raise InvalidPayload for the result of a function that was not called, as OpenAI does."""
    called: set[str] = set()
    for item, field in items:
        if isinstance(item, CallItem):
            called.add(item.call_id)
        elif isinstance(item, ResultItem) and item.call_id not in called:
            raise InvalidPayload(
                f"`{field}.call_id` must match an earlier call, in `input` or in the responses that "
                f"`{PREVIOUS}` continues. Given: {quote(item.call_id)}"
            )


class PlacedMessage(NamedTuple):
    """A message, and the path of its content in the request."""

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

    def place(self) -> PlacedMessage:
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
        messages.append(
            PlacedMessage(_message("system", [InputPart(type="input_text", text=instructions)]), "instructions")
        )
    answer: AssistantMessage | None = None
    for item, field in items:
        if isinstance(item, HostedCallItem | AdditionalToolsItem):
            continue
        if isinstance(item, ReasoningItem) and not item.written:
            continue
        if not isinstance(item, ResultItem) and (not isinstance(item, MessageItem) or _is_text_answer(item)):
            if answer is None or not answer.takes(item):
                messages += [answer.place()] if answer else []
                answer = AssistantMessage(field)
            answer.add(item)
            continue
        messages += [answer.place()] if answer else []
        answer = None
        messages.append(_place(item, field))
    return [*messages, answer.place()] if answer else messages


def _is_text_answer(item: MessageItem) -> bool:
    return item.role == "assistant" and all(part.type != "input_image" for part in item.content)


def _place(item: MessageItem | ResultItem, field: str) -> PlacedMessage:
    if isinstance(item, MessageItem):
        message = _message(item.role, item.content)
        return PlacedMessage(message, f"{field}.content")
    message = _message("tool", item.output, tool_call_id=item.call_id)
    return PlacedMessage(message, f"{field}.output")


def _message(role: str, parts: Iterable[InputPart], **further: str) -> Message:
    return Message.model_validate({"role": role, "content": [part.for_chat() for part in parts], **further})

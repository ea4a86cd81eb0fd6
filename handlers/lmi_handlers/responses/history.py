"""The items of a conversation: those of the continued responses, then the request's own."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import orjson
from pydantic import TypeAdapter

from lmi_core.calls.conversations import Turn
from lmi_core.errors import InvalidPayload, PayloadTooLarge, ResponseNotFound
from lmi_core.payloads.payload import shown
from lmi_core.served_model import ServedModel
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.process.front import elsewhere
from lmi_handlers.responses.items import CallItem, FunctionOutputItem, Item, ItemReference, Known
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
        given = shown(payload.previous_response_id)
        raise ResponseNotFound(f"Previous response with id {given} not found{_lost(model)}", PREVIOUS)
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
    past = [PlacedItem(item, f"{PREVIOUS}.{index}") for index, item in enumerate(_known(past_items(previous)))]
    own = [
        PlacedItem(_resolved(item, place, model, key) if isinstance(item, ItemReference) else item, place)
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


def _known(items: Sequence[JsonObject]) -> list[Known]:
    return [item for item in ITEMS.validate_python(items) if not isinstance(item, ItemReference)]


def _resolved(reference: ItemReference, place: str, model: ServedModel, key: str | None) -> Known:
    turn = model.conversations.owner(reference.id, key)
    if turn is None:
        raise ResponseNotFound(f"Item with id {shown(reference.id)} not found{_lost(model)}", f"{place}.id")
    (found,) = _known([item for item in orjson.loads(turn.answer)["output"] if item["id"] == reference.id])
    return found


def _lost(model: ServedModel) -> str:
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
        elif isinstance(item, FunctionOutputItem) and item.call_id not in called:
            raise InvalidPayload(
                f"`{field}.call_id` must match an earlier call, in `input` or in the responses that "
                f"`{PREVIOUS}` continues. Given: {shown(item.call_id)}"
            )

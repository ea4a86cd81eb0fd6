"""The routes of stored responses: read, delete, cancel, and list input items."""

from typing import Any

import orjson

from lmi_core.calls.access import Access
from lmi_core.calls.conversations import RunningAnswer, Turn
from lmi_core.errors import InvalidPayload, ResponseNotFound
from lmi_core.handler import Answer, AnswerForm, Call, Route, reading
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_handlers.process.front import elsewhere
from lmi_handlers.responses.answers import DeletedResponse, InputItems, OpenAiResponse
from lmi_handlers.responses.history import past_items

PATH = "/v1/responses/{response_id}"
MAX_ITEMS = 100
MAX_DIGITS = 9  # of a number; Python refuses to read thousands
DEFAULT_ITEMS = 20  # in a page, if the query has no limit


async def show_response(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the response, even while it is generated. Raise ResponseNotFound if it is not stored."""
    if call.query.get("stream", "").lower() in ("true", "1"):
        raise InvalidPayload("`stream` must be false here: only the request for a response streams it")
    if (answer := _running(call, dispatcher)) is not None:
        return _json(answer.so_far("in_progress"))
    return _json(_turn(call, dispatcher)[1].answer)


async def delete_response(call: Call, dispatcher: ServedModels) -> Answer:
    """Delete a response. Raise ResponseNotFound if it is not stored."""
    model, _ = _turn(call, dispatcher)
    response_id = call.path_parameters["response_id"]
    model.conversations.forget(response_id)
    return _json(orjson.dumps({"id": response_id, "object": "response", "deleted": True}))


async def cancel_response(call: Call, dispatcher: ServedModels) -> Answer:
    """Abort the generation of a streamed response. Raise InvalidPayload if it has ended."""
    if (answer := _running(call, dispatcher)) is not None:
        for model in dispatcher.all_models():  # a version and the one that replaces it store their responses together
            model.running.abort_one(answer.request_id, answer.requests)
        return _json(answer.so_far("cancelled"))
    _turn(call, dispatcher)
    raise InvalidPayload("Cannot cancel a synchronous response, or one that has ended")


async def list_input_items(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with a page of the response's input items, including those of earlier responses.

    Raise ResponseNotFound if the response is not stored, and InvalidPayload if there is no such page.
    """
    turn = _turn(call, dispatcher)[1]
    items = [*past_items(turn.previous), *orjson.loads(turn.question)]
    return _json(orjson.dumps(_page(items, call)))


def _page(items: list[dict[str, Any]], call: Call) -> dict[str, Any]:
    order = call.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidPayload(f"`order` must be asc or desc. Given: {quote(order)}")
    ordered = items if order == "asc" else items[::-1]
    rest = ordered[_start(ordered, call.query.get("after")) :]
    given = call.query.get("limit", str(DEFAULT_ITEMS))
    if not (given.isdecimal() and len(given) <= MAX_DIGITS and 1 <= int(given) <= MAX_ITEMS):
        raise InvalidPayload(f"`limit` must be an integer from 1 to {MAX_ITEMS}. Given: {quote(given)}")
    page = rest[: int(given)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(rest),
    }


def _start(items: list[dict[str, Any]], after: str | None) -> int:
    if after is None:
        return 0
    ids = [item["id"] for item in items]
    if after not in ids:
        raise InvalidPayload(f"`after` must be the id of one of the items. Given: {quote(after)}")
    return ids.index(after) + 1


def _running(call: Call, dispatcher: ServedModels) -> RunningAnswer | None:
    response_id = call.path_parameters["response_id"]
    for model in dispatcher.all_models():
        if (answer := model.conversations.find_running(response_id, call.key)) is not None:
            return answer
    return None


def _turn(call: Call, dispatcher: ServedModels) -> tuple[ManagedModel, Turn]:
    response_id = call.path_parameters["response_id"]
    for model in dispatcher.all_models():
        if (turn := model.conversations.find(response_id, call.key)) is not None:
            return model, turn
    reasons = f"it was not stored, or has been removed{elsewhere()}"
    raise ResponseNotFound(f"Response with id {quote(response_id)} not found: {reasons}")


def _json(body: bytes) -> Answer:
    return Answer(200, "application/json", body)


KEPT = (AnswerForm(OpenAiResponse),)
ROUTES = (
    Route(PATH, "GET", show_response, "A kept response", answers=KEPT),
    Route(
        PATH,
        "DELETE",
        delete_response,
        "Forget a response",
        access=Access.CLIENTS,
        answers=(AnswerForm(DeletedResponse),),
    ),
    Route(
        f"{PATH}/cancel",
        "POST",
        cancel_response,
        "End the generation of a response",
        access=Access.CLIENTS,
        answers=KEPT,
    ),
    reading(f"{PATH}/input_items", list_input_items, "The input items of a response", AnswerForm(InputItems)),
)

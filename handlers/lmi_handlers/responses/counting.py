"""The route that counts the tokens of a request's input."""

from typing import Any, NamedTuple

import orjson

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Answer, AnswerForm, Call
from lmi_core.host.beside_loop import read_beside
from lmi_core.route import inquiry
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_core.tolerance import names_of
from lmi_handlers.base.admission import check_tokenizer
from lmi_handlers.base.openai_handler import asked_model
from lmi_handlers.chat.generation import chat_prompt
from lmi_handlers.chat.images import image_parts
from lmi_handlers.responses.answers import InputTokens
from lmi_handlers.responses.chat import ResponseChat, response_chat
from lmi_handlers.responses.history import conversation, previous_turn
from lmi_handlers.responses.request import ResponsesRequest, read_request
from lmi_handlers.responses.truncation import truncated


async def count_input_tokens(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the number of tokens in the prompt of a response.

    The call takes no place in the model's queue. Raise InvalidPayload or ResponseNotFound if the request is invalid,
    and ModelNotFound or ModelNotReady if the model cannot answer.
    """
    given = call.json_object()
    name = given.get("model")
    model = asked_model(call, dispatcher, name if isinstance(name, str) else None)
    await model.health()
    check_tokenizer(model)
    asked = await read_beside(len(call.body), lambda: _read(given, call, model))
    model.ignored.report(asked.ignored, lambda: names_of([ResponsesRequest]))
    count = await read_beside(asked.size, lambda: _count(asked.chat, model, asked.truncates, call.request_id))
    body = orjson.dumps({"object": "response.input_tokens", "input_tokens": count})
    return Answer(200, "application/json", body, asked.ignored)


class _Asked(NamedTuple):
    chat: ResponseChat
    truncates: bool
    size: int  # of the conversation, in bytes
    ignored: tuple[str, ...]  # names of fields


def _read(given: dict[str, Any], call: Call, model: ManagedModel) -> _Asked:
    payload, ignored = read_request(given, model)
    previous = previous_turn(payload, model, call.key)
    items = conversation(payload, previous, model, call.key)
    size = len(call.body) + sum(turn.size for turn in (previous.conversation() if previous else ()))
    return _Asked(response_chat(payload, items), payload.truncation == "auto", size, ignored)


def _count(chat: ResponseChat, model: ManagedModel, truncates: bool, request_id: str) -> int:
    for place, _ in image_parts(chat):
        raise InvalidPayload(f"`{place}` is an image, but only text tokens can be counted")
    if truncates:
        chat = truncated(chat, model, request_id)
    return len(model.backend.tokenizer.encode(chat_prompt(chat, model), bool(chat.add_special_tokens)))


ROUTE = inquiry(
    "/v1/responses/input_tokens",
    count_input_tokens,
    "The number of a response's input tokens",
    (ResponsesRequest,),
    AnswerForm(InputTokens),
)

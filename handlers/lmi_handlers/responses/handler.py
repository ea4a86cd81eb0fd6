"""The handler of OpenAI's Responses API."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import orjson

from lmi_core.calls.conversations import Conversations, Turn
from lmi_core.errors import InvalidPayload, LmiError, ResponseNotFound
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import ShorterPrompt
from lmi_core.handler import Call, Generation, Route
from lmi_core.served_model import ServedModel
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.chat.generation import ChatForm, chat_generation
from lmi_handlers.fields.own_parameters import take_own, with_own
from lmi_handlers.responses.answers import RESPONSES
from lmi_handlers.responses.chat import ResponseChat, own_names, response_chat
from lmi_handlers.responses.counting import ROUTE as COUNT
from lmi_handlers.responses.formatters import OpenAiResponseFormatter, OpenAiResponseStreamFormatter
from lmi_handlers.responses.history import PREVIOUS, PlacedItem, conversation, previous_turn
from lmi_handlers.responses.request import ResponsesRequest, read_request
from lmi_handlers.responses.response import AskedResponse, repeated
from lmi_handlers.responses.stored import ROUTES as STORED
from lmi_handlers.responses.tools import members_of_calls
from lmi_handlers.responses.truncation import may_need_truncation, truncated


class OpenAiResponsesHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_responses"
    summary: ClassVar[str] = "OpenAI's responses"
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/v1/responses", summary="Answer a conversation", payloads=(ResponsesRequest,), answers=RESPONSES),
        COUNT,
        *STORED,
    )

    def param(self, error: LmiError, status: int) -> str | None:
        return error.field if isinstance(error, ResponseNotFound) else super().param(error, status)

    def code(self, error: LmiError) -> str:
        """Return the `code` of an error; OpenAI's own if a response cannot be continued."""
        lost = isinstance(error, ResponseNotFound) and error.field == PREVIOUS
        return "previous_response_not_found" if lost else super().code(error)

    def parse(self, call: Call, model: ServedModel) -> Generation:
        given, own = take_own(call.json_object(), model, ResponsesRequest)
        payload, ignored = read_request(given, model)
        check_model(payload.model, call, model)
        call = payload.named(call)
        previous = previous_turn(payload, model, call.key)
        items = conversation(payload, previous, model, call.key)
        asked = _asked(payload, call, model, previous, items)
        generation = _generation(payload, response_chat(payload, items), call, model, asked)
        return with_own(replace(generation, ignored=ignored, request_id=call.request_id), own)


def _generation(
    payload: ResponsesRequest, chat: ResponseChat, call: Call, model: ServedModel, asked: AskedResponse
) -> Generation:
    form = ChatForm(_formatter(payload, model, asked), details=True)
    generation = chat_generation(chat, call, model, form)
    (request,) = generation.requests
    request = replace(request, names=own_names(request))
    if payload.truncation == "auto" and may_need_truncation(chat, request.prompt, model):
        request = replace(request, shorten=partial(_shortened, chat, call, model, form))
    return replace(generation, requests=(request,))


def _shortened(chat: ResponseChat, call: Call, model: ServedModel, form: ChatForm) -> ShorterPrompt:
    (request,) = chat_generation(truncated(chat, model, call.request_id), call, model, form).requests
    return ShorterPrompt(request.prompt, request.images)


def _formatter(payload: ResponsesRequest, model: ServedModel, asked: AskedResponse) -> Callable[..., OutputFormatter]:
    if not payload.stream:
        return partial(OpenAiResponseFormatter, asked=asked)
    conversations = model.conversations if _stores(payload, model) else None
    return partial(OpenAiResponseStreamFormatter, asked=asked, conversations=conversations)


def _asked(
    payload: ResponsesRequest, call: Call, model: ServedModel, previous: Turn | None, items: Sequence[PlacedItem]
) -> AskedResponse:
    stored = _stores(payload, model)
    members = repeated(payload, model.name_asked(payload.model)) | {"store": stored}
    # orjson reads deeper nesting than it can write, and the response repeats both.
    for name in ("text", "tools"):
        try:
            orjson.dumps(members[name])
        except orjson.JSONEncodeError as error:
            raise InvalidPayload(f"`{name}` cannot be taken: {error}") from None
    asked = AskedResponse(members, call.request_id, call.key, functions=members_of_calls(payload.tools or ()))
    if not stored:
        return asked
    own = orjson.dumps([placed.item.listed() for placed in items if placed.is_new])
    return replace(asked, keep=partial(_keep, model.conversations, asked, own, previous))


def _keep(
    conversations: Conversations,
    asked: AskedResponse,
    question: bytes,
    previous: Turn | None,
    answer: bytes,
    item_ids: Sequence[str],
) -> None:
    conversations.keep(asked.response_id, Turn(question, answer, previous, item_ids, asked.key))


def _stores(payload: ResponsesRequest, model: ServedModel) -> bool:
    return payload.store is not False and model.conversations.limit > 0

"""The handler of OpenAI's Responses API."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

import orjson

from lmi_core.calls.answer import json_answer
from lmi_core.calls.conversations import Turn
from lmi_core.errors import InvalidPayload, LmiError, ResponseNotFound
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import ShorterPrompt
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Route, inquiry
from lmi_core.host.off_loop import run_off_loop
from lmi_core.served_model import ManagedModel, ServedModel, ServedModels
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.base.tokenizing import read_call
from lmi_handlers.chat.generation import ChatForm, chat_generation, chat_prompt
from lmi_handlers.chat.images import image_parts
from lmi_handlers.fields.openai_tolerance import take_own, with_own
from lmi_handlers.responses.answers import RESPONSES, InputTokens
from lmi_handlers.responses.chat import ResponseChat, may_need_truncation, own_names, response_chat, truncate
from lmi_handlers.responses.formatters import OpenAiResponseFormatter, OpenAiResponseStreamFormatter
from lmi_handlers.responses.history import PREVIOUS, PlacedItem, conversation, previous_turn
from lmi_handlers.responses.items import offered_tools
from lmi_handlers.responses.request import ResponsesRequest, read_fields
from lmi_handlers.responses.response import ResponseFacts, request_members
from lmi_handlers.responses.stored import ROUTES as STORED
from lmi_handlers.responses.tools import members_of_calls


async def count_input_tokens(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the number of tokens in the prompt of a response.

    The call takes no place in the model's queue. Raise InvalidPayload or ResponseNotFound if the request is invalid,
    and ModelNotFound or ModelNotReady if the model cannot answer.
    """
    payload, model, ignored = await read_call(call, dispatcher, ResponsesRequest, read_fields)
    previous = previous_turn(payload, model, call.key)
    size = len(call.body) + sum(turn.size for turn in (previous.conversation() if previous else ()))
    count = await run_off_loop(size, partial(_count, payload, previous, model, call))
    return json_answer({"object": "response.input_tokens", "input_tokens": count}, ignored=ignored)


def _count(payload: ResponsesRequest, previous: Turn | None, model: ManagedModel, call: Call) -> int:
    chat = response_chat(payload, conversation(payload, previous, model, call.key))
    for place, _ in image_parts(chat):
        raise InvalidPayload(f"`{place}` is an image, but only text tokens can be counted")
    if payload.truncation == "auto":
        chat = truncate(chat, model, call.request_id)
    return len(model.backend.tokenizer.encode(chat_prompt(chat, model), bool(chat.add_special_tokens)))


COUNT_ROUTE = inquiry(
    "/v1/responses/input_tokens",
    count_input_tokens,
    "The number of a response's input tokens",
    (ResponsesRequest,),
    AnswerForm(InputTokens),
)


class OpenAiResponsesHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_responses"
    summary: ClassVar[str] = "OpenAI's responses"
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/v1/responses", summary="Answer a conversation", payloads=(ResponsesRequest,), answers=RESPONSES),
        COUNT_ROUTE,
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
        payload, ignored = read_fields(given, ResponsesRequest, model.options.strict_parameters)
        check_model(payload.model, call, model)
        call = payload.identify(call)
        previous = previous_turn(payload, model, call.key)
        items = conversation(payload, previous, model, call.key)
        asked = _describe(payload, call, model, previous, items)
        generation = _generation(payload, response_chat(payload, items), call, model, asked)
        return with_own(replace(generation, ignored=ignored, request_id=call.request_id), own)


def _generation(
    payload: ResponsesRequest, chat: ResponseChat, call: Call, model: ServedModel, asked: ResponseFacts
) -> Generation:
    form = ChatForm(_formatter(payload, model, asked), details=True)
    generation = chat_generation(chat, call, model, form)
    (request,) = generation.requests
    request = replace(request, names=own_names(request))
    if payload.truncation == "auto" and may_need_truncation(chat, request.prompt, model):
        request = replace(request, shorten=partial(_shorten, chat, call, model, form))
    return replace(generation, requests=(request,))


def _shorten(chat: ResponseChat, call: Call, model: ServedModel, form: ChatForm) -> ShorterPrompt:
    (request,) = chat_generation(truncate(chat, model, call.request_id), call, model, form).requests
    return ShorterPrompt(request.prompt, request.images)


def _formatter(payload: ResponsesRequest, model: ServedModel, asked: ResponseFacts) -> Callable[..., OutputFormatter]:
    if not payload.stream:
        return partial(OpenAiResponseFormatter, asked=asked)
    conversations = model.conversations if _stores(payload, model) else None
    return partial(OpenAiResponseStreamFormatter, asked=asked, conversations=conversations)


def _describe(
    payload: ResponsesRequest, call: Call, model: ServedModel, previous: Turn | None, items: Sequence[PlacedItem]
) -> ResponseFacts:
    stored = _stores(payload, model)
    members = request_members(payload, model.name_asked(payload.model)) | {"store": stored}
    for name in ("text", "tools"):
        _written(name, members[name])
    functions = members_of_calls(offered_tools(payload.tools, (item for item, _ in items)))
    asked = ResponseFacts(members, call.request_id, call.key, functions=functions)
    if not stored:
        return asked
    own = _written("input", [placed.item.listed() for placed in items if placed.is_new])

    def keep(answer: bytes, item_ids: Sequence[str]) -> None:
        model.conversations.keep(asked.response_id, Turn(own, answer, previous, item_ids, asked.key))

    return replace(asked, keep=keep)


def _written(field: str, value: object) -> bytes:
    """Return the JSON of a field that is repeated.

    Raise InvalidPayload if orjson, which could read it, cannot write it.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise InvalidPayload(f"`{field}` cannot be taken: {error}") from None


def _stores(payload: ResponsesRequest, model: ServedModel) -> bool:
    return payload.store is not False and model.conversations.limit > 0

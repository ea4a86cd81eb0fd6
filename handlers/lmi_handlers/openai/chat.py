"""OpenAI's chat completions, and vLLM's batches of chats: one request, with a choice for each chat in the answer."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from lmi_core.calls.answer_form import output_formatter_forms
from lmi_core.errors import InvalidPayload
from lmi_core.generation.output import GenerationOutput
from lmi_core.handler import AnswerForm, Call, Generation, Route
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.lmi import ANSWERS as LMI_ANSWERS
from lmi_handlers.answers.openai import CHAT, ChatCompletion
from lmi_handlers.base.openai_handler import JSON_LINES, OpenAiHandler, check_model
from lmi_handlers.chat.generation import ChatForm, chat_generation
from lmi_handlers.chat.lmi_formatters import LmiChatJsonLinesFormatter
from lmi_handlers.chat.messages import Message
from lmi_handlers.chat.openai_formatters import (
    OpenAiChatFormatter,
    OpenAiChatStreamFormatter,
    TgiChatStreamFormatter,
)
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.chat.schema import JsonObject
from lmi_handlers.fields.openai_tolerance import take_fields, take_own, with_own

BATCH_PATH = "/v1/chat/completions/batch"
NOT_IN_BATCHES = ("stream", "tools", "functions", "use_beam_search", "prompt_logprobs", "return_prompt_text")


class ChatBatchRequest(ChatRequest):
    """A request for the answers to several chats, which share all fields except the messages."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"messages": [[{"role": "user", "content": text}] for text in ("Hi", "Hey")]}]}
    )

    messages: list[Annotated[list[Message], Field(min_length=1)]] = Field(  # type: ignore[assignment]
        min_length=1, description="The chats."
    )


class OpenAiChatBatchFormatter(OpenAiChatFormatter):
    name: ClassVar[str] = "openai_chat_batch"

    def __init__(self, chats: Sequence[OpenAiChatFormatter]) -> None:
        # The answer has no place for those of several prompts
        super().__init__(replace(chats[0].chat, prompt_token_ids=False))
        self._chats = chats

    def choices(self, output: GenerationOutput) -> list[JsonObject]:
        found = [
            chat.choice(index, output.best_sequences(1, index)[0], output) for index, chat in enumerate(self._chats)
        ]
        self._readers = [reader for chat in self._chats for reader in chat._readers]
        return found


def batch_generation(call: Call, model: ServedModel) -> Generation:
    """Return the generation of all chats. Raise InvalidPayload for what vLLM refuses in batches."""
    given, own = take_own(call.json_object(), model, ChatRequest)
    chats = given.get("messages")
    if not isinstance(chats, list) or not chats or not all(isinstance(each, list) for each in chats):
        raise InvalidPayload(f"`messages` must be a list of chats, each a list of messages. Given: {quote(chats)}")
    for name in NOT_IN_BATCHES:
        if given.get(name):
            raise InvalidPayload(f"`{name}` cannot be used in batches of chats. Given: {quote(given[name])}")
    if given.get("n") not in (None, 1):
        raise InvalidPayload(f"`n` must be 1 in batches of chats. Given: {quote(given['n'])}")
    strict = model.options.strict_parameters
    requests, formatters = [], []
    ignored: tuple[str, ...] = ()
    for messages in chats:
        payload, ignored = take_fields({**given, "messages": messages}, ChatRequest, strict)
        check_model(payload.model, call, model)
        call = payload.identify(call)
        generation = chat_generation(payload, call, model, ChatForm(OpenAiChatFormatter, details=True))
        requests.append(generation.requests[0])
        formatters.append(generation.formatter)
    formatter = OpenAiChatBatchFormatter([each for each in formatters if isinstance(each, OpenAiChatFormatter)])
    return with_own(Generation(tuple(requests), formatter, ignored=ignored, request_id=call.request_id), own)


class OpenAiChatHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_chat"
    summary: ClassVar[str] = "OpenAI's chats"
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/v1/chat/completions",
            summary="Answer a chat",
            payloads=(ChatRequest,),
            answers=(*CHAT, *output_formatter_forms(LMI_ANSWERS)),
        ),
        Route(
            BATCH_PATH,
            summary="Answer several chats",
            payloads=(ChatBatchRequest,),
            answers=(AnswerForm(ChatCompletion),),
        ),
    )

    def parse(self, call: Call, model: ServedModel) -> Generation:
        if call.path == BATCH_PATH:
            return batch_generation(call, model)
        given, own = take_own(call.json_object(), model, ChatRequest)
        payload, ignored = take_fields(given, ChatRequest, model.options.strict_parameters)
        check_model(payload.model, call, model)
        call = payload.identify(call)
        generation = chat_generation(payload, call, model, _form(call, model, bool(payload.stream)))
        return with_own(replace(generation, ignored=ignored, request_id=call.request_id), own)


def _form(call: Call, model: ServedModel, stream: bool) -> ChatForm:
    """Return OpenAI's form, unless the client or `option.output_formatter` asks for another."""
    if JSON_LINES in call.headers.get("Accept", ""):
        return ChatForm(LmiChatJsonLinesFormatter)
    chosen = model.chat_formatters
    if chosen.everywhere:
        return ChatForm(partial(model.new_chat_formatter, chosen.stream if stream else chosen.whole))
    streaming = TgiChatStreamFormatter if model.options.tgi_compat else OpenAiChatStreamFormatter
    return ChatForm(streaming if stream else OpenAiChatFormatter, details=True)

"""OpenAI's chat completions."""

from dataclasses import replace
from functools import partial
from typing import ClassVar

from lmi_core.calls.answer_form import output_formatter_forms
from lmi_core.handler import AnswerForm, Call, Generation, Route
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.lmi import ANSWERS as LMI_ANSWERS
from lmi_handlers.answers.openai import CHAT, ChatCompletion
from lmi_handlers.base.openai_handler import JSON_LINES, OpenAiHandler, check_model
from lmi_handlers.chat.generation import ChatForm, chat_generation, read_chat
from lmi_handlers.chat.lmi_formatters import LmiChatJsonLinesFormatter
from lmi_handlers.chat.openai_formatters import (
    OpenAiChatFormatter,
    OpenAiChatStreamFormatter,
    TgiChatStreamFormatter,
)
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.own_parameters import take_own, with_own
from lmi_handlers.openai.chat_batch import PATH, ChatBatchRequest, batch_generation


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
            PATH, summary="Answer several chats", payloads=(ChatBatchRequest,), answers=(AnswerForm(ChatCompletion),)
        ),
    )

    def parse(self, call: Call, model: ServedModel) -> Generation:
        if call.path == PATH:
            return batch_generation(call, model)
        given, own = take_own(call.json_object(), model, ChatRequest)
        payload, ignored = read_chat(given, model)
        check_model(payload.model, call, model)
        call = payload.with_id(call)
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

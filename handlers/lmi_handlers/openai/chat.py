"""OpenAI's chat completions."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from lmi_core.handler import Call, Generation, Handler, Route
from lmi_core.hookspecs import hookimpl
from lmi_core.payloads.payload import read_object
from lmi_core.serving.model import Model
from lmi_handlers.chat.generation import chat_generation, read_chat
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.openai.handler import JSON_LINES, OpenAiHandler, check_model


class OpenAiChatHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_chat"
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/v1/chat/completions", summary="Answer a chat", payloads=(ChatRequest,)),
    )

    def parse(self, call: Call, model: Model) -> Generation:
        payload, ignored = read_chat(read_object(call.body), model)
        check_model(payload.model, call, model)
        generation = chat_generation(payload, call, model, _formatter(call, model, bool(payload.stream)))
        return replace(generation, ignored=ignored)


def _formatter(call: Call, model: Model, stream: bool) -> str:
    """OpenAI's form, unless the client or `option.output_formatter` asks for another."""
    if JSON_LINES in call.headers.get("Accept", ""):
        return "lmi_chat_jsonlines"
    chosen = model.plan.chat_formatters
    if chosen.everywhere:
        return chosen.stream if stream else chosen.whole
    return "openai_chat_stream" if stream else "openai_chat"


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler]], None]) -> None:
    register(OpenAiChatHandler)

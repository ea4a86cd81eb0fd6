"""The handler of Ollama's API."""

from dataclasses import replace
from typing import ClassVar

from lmi_core.calls.answer import json_answer
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import InvalidPayload, LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Route
from lmi_core.served_model import ServedModel, ServedModels
from lmi_handlers.base.openai_handler import OpenAiHandler, take_adapter_model
from lmi_handlers.base.statuses import USUAL
from lmi_handlers.fields.openai_tolerance import with_own
from lmi_handlers.fields.request_headers import TARGET_MODEL_HEADER
from lmi_handlers.ollama import names
from lmi_handlers.ollama.answers import CHATTED, ERRORS, GENERATED
from lmi_handlers.ollama.formatters import CHAT_MEMBERS, GENERATE_MEMBERS, Members, Stopwatch
from lmi_handlers.ollama.generation import OllamaCall, answer_to_prompt, next_message
from lmi_handlers.ollama.models import ROUTES as MODEL_ROUTES
from lmi_handlers.ollama.payload import OllamaChat, OllamaGenerate, OllamaRequest, take_own_options, take_payload

CHAT = "/api/chat"


class OllamaHandler(OpenAiHandler):
    """The handler of Ollama's API, which names models and adapters in `model`, as OpenAI's handlers do."""

    name: ClassVar[str] = "ollama"
    summary: ClassVar[str] = "Ollama's API"
    reads_embeddings: ClassVar[bool] = True  # to refuse them with 400: clients download a model after a 404
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/api/generate", summary="Answer a prompt", payloads=(OllamaGenerate,), answers=GENERATED),
        Route(CHAT, summary="Answer a chat", payloads=(OllamaChat,), answers=CHATTED),
        *MODEL_ROUTES,
    )

    def served_name(self, name: str, models: ServedModels) -> str:
        return names.served_name(name, models)

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        return take_adapter_model(call, model, names.find_name)

    def parse(self, call: Call, model: ServedModel) -> Generation | EmbeddingCall | Answer:
        stopwatch = Stopwatch()
        strict = model.options.strict_parameters
        body, own = take_own_options(call.json_object(), model)
        if call.path == CHAT:
            chat, ignored = take_payload(body, OllamaChat, strict)
            asked = _read(chat, call, model, stopwatch, CHAT_MEMBERS, chat.messages)
            parsed = next_message(chat, asked) if chat.messages else asked.answer_load()
        else:
            prompt, ignored = take_payload(body, OllamaGenerate, strict)
            asked = _read(prompt, call, model, stopwatch, GENERATE_MEMBERS, prompt.prompt)
            parsed = answer_to_prompt(prompt, prompt.prompt, asked) if prompt.prompt else asked.answer_load()
        parsed = replace(parsed, ignored=ignored)
        return with_own(parsed, own, "options.") if isinstance(parsed, Generation) else parsed

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return json_answer({"error": error.message}, USUAL.of(error, model))


def _read(
    payload: OllamaRequest, call: Call, model: ServedModel, watch: Stopwatch, members: Members, content: object
) -> OllamaCall:
    """Return the call with the name of its model. Raise ModelNotFound for another name, or InvalidPayload."""
    asked = OllamaCall(payload, check_name(payload.model, call, model), call, model, watch, members)
    if not model.backend.generates and (content or not payload.unloads):
        what = "chat" if call.path == CHAT else "generate"
        raise InvalidPayload(f'"{asked.name}" does not support {what}: it makes no texts')
    if payload.think and model.options.reasoning_format is None:  # clients recognise the message
        raise InvalidPayload(
            f'"{asked.name}" does not support thinking: `think` needs option.reasoning_parser. Given: {payload.think!r}'
        )
    return asked


def check_name(given: str | None, call: Call, model: ServedModel) -> str:
    """Return the client's name of the model. Raise ModelNotFound for another model's name."""
    name = given or model.names[0]
    known = (*model.names, *model.adapter_names)
    if names.find_name(name, known) is None and TARGET_MODEL_HEADER not in call.headers:
        raise names.not_found_error(name)
    return name

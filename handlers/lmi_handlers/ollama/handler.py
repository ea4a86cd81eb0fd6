"""The handler of Ollama's API."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from lmi_core.calls.answer import json_answer
from lmi_core.embedding_call import EmbeddingCall
from lmi_core.errors import InvalidPayload, LmiError, Overloaded
from lmi_core.formatter import OutputFormatter
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Handler, Route
from lmi_core.payloads.payload import shown
from lmi_core.served_model import ServedModel, ServedModels
from lmi_handlers.base.sagemaker_headers import TARGET_MODEL_HEADER
from lmi_handlers.base.statuses import USUAL
from lmi_handlers.fields.own_parameters import with_own
from lmi_handlers.ollama import names
from lmi_handlers.ollama.answers import CHATTED, ERRORS, GENERATED
from lmi_handlers.ollama.formatters import CHAT_MEMBERS, GENERATE_MEMBERS, Members, Stopwatch
from lmi_handlers.ollama.generation import Asked, answer_to_prompt, next_message
from lmi_handlers.ollama.management import ROUTES as MANAGEMENT_ROUTES
from lmi_handlers.ollama.models import ROUTES as MODEL_ROUTES
from lmi_handlers.ollama.options import take_own_options
from lmi_handlers.ollama.payload import OllamaChat, OllamaGenerate, OllamaRequest, take_payload

CHAT = "/api/chat"


class OllamaHandler(Handler):
    name: ClassVar[str] = "ollama"
    summary: ClassVar[str] = "Ollama's API"
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (
        Route("/api/generate", summary="Answer a prompt", payloads=(OllamaGenerate,), answers=GENERATED),
        Route(CHAT, summary="Answer a chat", payloads=(OllamaChat,), answers=CHATTED),
        *MODEL_ROUTES,
        *MANAGEMENT_ROUTES,
    )
    adapters_are_models: ClassVar[bool] = True

    def model_name(self, path_parameters: Mapping[str, str], headers: Mapping[str, str]) -> str | None:
        return headers.get(TARGET_MODEL_HEADER)

    def model_name_in_body(self, call: Call) -> str | None:
        name = call.json_object().get("model")
        return name if isinstance(name, str) and name else None

    def served_name(self, name: str, models: ServedModels) -> str:
        return names.served_name(name, models)

    def name_adapters(self, call: Call, model: ServedModel) -> Call:
        """Take an adapter's name in `model` for the model with that adapter."""
        payload = call.json_object()
        name = payload.get("model")
        if not isinstance(name, str) or names.find_name(name, model.names) is not None:
            return call
        adapter = names.find_name(name, model.adapter_names)
        if adapter is None:
            return call
        named = payload.get("adapters")
        if named not in (None, [], adapter, [adapter]):
            raise InvalidPayload(f"`model` and `adapters` name different adapters: {shown(name)} and {shown(named)}")
        return call.with_json({**payload, "adapters": adapter})

    def parse(self, call: Call, model: ServedModel) -> Generation | EmbeddingCall | Answer:
        stopwatch = Stopwatch()
        strict = model.options.strict_parameters
        body, own = take_own_options(call.json_object(), model)
        if call.path == CHAT:
            chat, ignored = take_payload(body, OllamaChat, strict)
            asked = _asked(chat, call, model, stopwatch, CHAT_MEMBERS)
            parsed = next_message(chat, asked) if chat.messages else asked.without_prompt()
        else:
            prompt, ignored = take_payload(body, OllamaGenerate, strict)
            asked = _asked(prompt, call, model, stopwatch, GENERATE_MEMBERS)
            parsed = answer_to_prompt(prompt, prompt.prompt, asked) if prompt.prompt else asked.without_prompt()
        parsed = replace(parsed, ignored=ignored)
        return with_own(parsed, own, "options.") if isinstance(parsed, Generation) else parsed

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        status = USUAL.of(error)
        if isinstance(error, Overloaded) and model is not None:
            status = model.server.throttle_error_http_code
        return json_answer({"error": error.message}, status)


def _asked(payload: OllamaRequest, call: Call, model: ServedModel, stopwatch: Stopwatch, members: Members) -> Asked:
    """Return the call with the name of its model. Raise ModelNotFound for another name, or InvalidPayload."""
    asked = Asked(payload, name_asked(payload.model, call, model), call, model, stopwatch, members)
    asked.check_thinking()
    return asked


def name_asked(given: str | None, call: Call, model: ServedModel) -> str:
    """Return the client's name of the model. Raise ModelNotFound for another model's name."""
    name = given or model.names[0]
    known = (*model.names, *model.adapter_names)
    if names.find_name(name, known) is None and TARGET_MODEL_HEADER not in call.headers:
        raise names.not_found(name)
    return name

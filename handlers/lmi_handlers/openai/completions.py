"""The handler of OpenAI's completions, of the list of models, and of vLLM's routes to a tokenizer."""

from dataclasses import replace
from typing import ClassVar

from lmi_core.calls.answer_form import output_formatter_forms
from lmi_core.handler import Call, Generation, Route
from lmi_core.served_model import ServedModel
from lmi_handlers.answers.lmi import ANSWERS as LMI_ANSWERS
from lmi_handlers.answers.openai import COMPLETION
from lmi_handlers.base.openai_handler import JSON_LINES, OpenAiHandler, check_model
from lmi_handlers.base.tokenizing import ROUTES as TOKENIZER_ROUTES
from lmi_handlers.completions.formatters import OpenAiCompletionsFormatter, OpenAiCompletionsStreamFormatter
from lmi_handlers.completions.generation import completion_generation, plain_completion
from lmi_handlers.completions.request import CompletionRequest
from lmi_handlers.fields.openai_tolerance import take_fields, take_own, with_own
from lmi_handlers.openai.models import ERRORS as MODEL_ERRORS
from lmi_handlers.openai.models import LISTED, SHOWN, list_models, show_model


class OpenAiCompletionsHandler(OpenAiHandler):
    name: ClassVar[str] = "openai_completions"
    summary: ClassVar[str] = "OpenAI's completions and models, and vLLM's routes to a tokenizer"
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/v1/completions",
            summary="Complete a text",
            payloads=(CompletionRequest,),
            answers=(*COMPLETION, *output_formatter_forms(LMI_ANSWERS)),
        ),
        Route("/v1/models", "GET", list_models, "List the served models", answers=(*LISTED, *MODEL_ERRORS)),
        Route(
            "/v1/models/{model}", "GET", show_model, "Show one of the served models", answers=(*SHOWN, *MODEL_ERRORS)
        ),
        *TOKENIZER_ROUTES,
    )

    def parse(self, call: Call, model: ServedModel) -> Generation:
        given, own = take_own(call.json_object(), model, CompletionRequest)
        payload, ignored = take_fields(given, CompletionRequest, model.options.strict_parameters)
        check_model(payload.model, call, model)
        call = payload.identify(call)
        generation = _generation(payload, call, model)
        return with_own(replace(generation, ignored=ignored, request_id=call.request_id), own)


def _generation(payload: CompletionRequest, call: Call, model: ServedModel) -> Generation:
    if JSON_LINES in call.headers.get("Accept", ""):
        return plain_completion(
            payload, model, "jsonlines" if not model.options.dynamic_batching else "dynamic_jsonlines"
        )
    if model.chat_formatters.everywhere:
        return plain_completion(payload, model, model.formatters.stream if payload.stream else model.formatters.whole)
    form = OpenAiCompletionsStreamFormatter if payload.stream else OpenAiCompletionsFormatter
    return completion_generation(payload, call, model, form)

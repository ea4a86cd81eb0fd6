"""LMI's asynchronous mode: vLLM's completions and chats on LMI's routes, and vLLM's sampling of `inputs`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import orjson

from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.output import GenerationOutput
from lmi_core.generation.parameters import GenerationParameters
from lmi_core.handler import Call, Generation
from lmi_core.payloads.plain_text import is_plain_text
from lmi_core.served_model import ServedModel
from lmi_handlers.base.adapter_names import ADAPTER_HEADER
from lmi_handlers.base.openai_handler import take_adapter_model
from lmi_handlers.chat.generation import ChatForm
from lmi_handlers.chat.openai_formatters import DONE, OpenAiChatFormatter, OpenAiChatStreamFormatter
from lmi_handlers.completions.formatters import (
    CompletionAnswer,
    OpenAiCompletionsFormatter,
    OpenAiCompletionsStreamFormatter,
)
from lmi_handlers.completions.generation import completion_generation, plain_completion
from lmi_handlers.completions.request import CompletionRequest
from lmi_handlers.fields.openai_tolerance import take_fields, take_own, with_own
from lmi_schemas.vllm_errors import stream_error

MODEL = "lmi"  # in LMI's containers, the name of every model without option.served_model_name


class LinesFormatter(OutputFormatter):
    """A formatter that writes the JSON in another one's server-sent events as lines.

    A model.py's function changes the events, as in LMI's containers.
    """

    name: ClassVar[str] = "async_lines"
    content_type = "application/jsonlines"

    def __init__(self, events: OpenAiChatStreamFormatter | OpenAiCompletionsStreamFormatter) -> None:
        self.engine_form = self._events = events

    def format(self, output: GenerationOutput) -> list[bytes]:
        return [event.removeprefix(b"data: ")[:-1] for event in self._events.format(output) if event is not DONE]

    def error(self, error: LmiError) -> bytes:
        return orjson.dumps(stream_error(error), option=orjson.OPT_APPEND_NEWLINE)

    def reads_log_probs(self, parameters: GenerationParameters) -> bool:
        return self._events.reads_log_probs(parameters)


def with_adapter_as_model(call: Call, model: ServedModel) -> Call:
    """Return the call with its adapter as `model` and in `adapters`, as vLLM names it in requests and answers."""
    if not model.adapters.folders or is_plain_text(call.headers):
        return call
    call = take_adapter_model(call, model)
    named = call.headers.get(ADAPTER_HEADER) or call.json_object().get("adapters")
    name = named[0] if isinstance(named, list) and len(named) == 1 else named
    return call.with_json({**call.json_object(), "model": name}) if isinstance(name, str) else call


def chat_form(stream: bool) -> ChatForm:
    """Return the form of the answers to chats: vLLM's."""
    if not stream:
        return ChatForm(OpenAiChatFormatter, details=True)
    return ChatForm(lambda answer: LinesFormatter(OpenAiChatStreamFormatter(answer)), details=True)


def completion(body: Mapping[str, Any], call: Call, model: ServedModel) -> Generation:
    """Return the generation of a completion, answered in vLLM's form or that of `option.output_formatter`."""
    given, own = take_own(body, model, CompletionRequest)
    payload, ignored = take_fields(given, CompletionRequest, model.options.strict_parameters)
    call = payload.identify(call)
    if model.chat_formatters.everywhere:
        names = model.formatters
        generation = plain_completion(payload, model, names.stream if payload.stream else names.whole)
    else:
        generation = completion_generation(
            payload, call, model, _lines if payload.stream else OpenAiCompletionsFormatter
        )
    return with_own(replace(generation, ignored=ignored, request_id=call.request_id), own)


def _lines(answer: CompletionAnswer) -> OutputFormatter:
    return LinesFormatter(OpenAiCompletionsStreamFormatter(answer))


def sample_as_vllm(parameters: dict[str, Any]) -> None:
    """Sample unless the client refuses it or searches beams, and answer with one of several sequences."""
    if parameters.get("num_beams", 1) == 1:
        parameters.setdefault("do_sample", True)
        parameters.setdefault("temperature", 1.0)
    if {"best_of", "num_beams"} & parameters.keys():
        parameters.setdefault("n", 1)


def engine_form(
    parameters: Mapping[str, Any], call: Call, model: ServedModel, *, name: str | None, stream: bool
) -> OutputFormatter:
    """Return vLLM's form of an answer to `inputs`, which a function for vLLM's responses changes."""
    details = bool(parameters.get("details"))
    prefill = details and parameters.get("decoder_input_details") and not stream
    answer = CompletionAnswer(
        response_id=f"cmpl-{call.request_id}",
        model=model.name_asked(name),
        fingerprint=model.fingerprint,
        tokenizer=model.backend.tokenizer,
        count=parameters.get("n") or 1,
        echo=bool(parameters.get("return_full_text")) and not stream,
        log_probs=1 if details or stream else None,
        include_usage=stream,
        continuous_usage=stream,
        token_ids_as_text=True,
        prompt_log_probs=1 if prefill else None,
    )
    return OpenAiCompletionsStreamFormatter(answer) if stream else OpenAiCompletionsFormatter(answer)

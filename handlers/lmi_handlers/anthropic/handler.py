"""The handler of Anthropic's Messages API."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import ClassVar

from lmi_core.calls.answer import json_answer
from lmi_core.errors import LmiError
from lmi_core.formatter import OutputFormatter
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Route, inquiry
from lmi_core.host.off_loop import run_off_loop
from lmi_core.served_model import ManagedModel, ServedModel, ServedModels
from lmi_core.serving.validation import with_images
from lmi_handlers.anthropic.chat import message_generation
from lmi_handlers.anthropic.formatters import AnthropicFormatter, AnthropicStreamFormatter, MessageAnswer
from lmi_handlers.anthropic.payload import CountTokensRequest, MessagesRequest
from lmi_handlers.anthropic.tolerance import budget_without_effect, take_fields
from lmi_handlers.base import anthropic_errors as errors
from lmi_handlers.base.anthropic_answers import ERRORS, MESSAGES, MessageTokens
from lmi_handlers.base.anthropic_errors import REQUEST_ID_HEADER
from lmi_handlers.base.openai_handler import OpenAiHandler, check_model
from lmi_handlers.base.tokenizing import read_call
from lmi_handlers.chat.generation import ChatForm
from lmi_handlers.fields.openai_tolerance import take_own, with_own


async def count_tokens(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the number of tokens in the prompt of `/v1/messages` for this body, including images.

    Only images take a place in the model's queue, because they may have to be downloaded. Raise InvalidPayload,
    ModelNotFound or Overloaded.
    """
    payload, model, ignored = await read_call(call, dispatcher, CountTokensRequest, take_fields)
    form = ChatForm(partial(AnthropicFormatter, MessageAnswer(call.request_id, 1, model.backend.max_length)), True)
    written = partial(message_generation, payload, call, model, form)  # runs the chat template
    (request,) = (await run_off_loop(len(call.body), written)).requests
    with dispatcher.admit(model) if request.images else nullcontext():
        count = await _count(request, model)
    counts = {"input_tokens": count, "context_management": {"original_input_tokens": count}}
    return json_answer(counts, ignored=ignored, headers={REQUEST_ID_HEADER: call.request_id})


async def _count(request: GenerationRequest, model: ManagedModel) -> int:
    if request.images:
        placed = (await with_images(request, model.backend)).image_prompt
        assert placed is not None
        return len(placed.prompt_ids)
    assert isinstance(request.prompt, str)
    encode = partial(model.backend.tokenizer.encode, request.prompt, request.add_special_tokens)
    return len(await run_off_loop(len(request.prompt), encode))


class AnthropicHandler(OpenAiHandler):
    """The handler of Messages, which names models and adapters in `model`, as OpenAI's handlers do."""

    name: ClassVar[str] = "anthropic"
    summary: ClassVar[str] = "Anthropic's messages"
    errors: ClassVar[tuple[AnswerForm, ...]] = ERRORS
    routes: ClassVar[tuple[Route, ...]] = (
        Route(
            "/v1/messages",
            summary="Answer a conversation with Anthropic's messages",
            payloads=(MessagesRequest,),
            answers=MESSAGES,
        ),
        inquiry(
            "/v1/messages/count_tokens",
            count_tokens,
            "Count the tokens in a message's prompt",
            (CountTokensRequest,),
            AnswerForm(MessageTokens),
        ),
    )

    def parse(self, call: Call, model: ServedModel) -> Generation:
        given, own = take_own(call.json_object(), model, MessagesRequest)
        payload, ignored = take_fields(given, MessagesRequest, model.options.strict_parameters)
        check_model(payload.model, call, model)
        payload.refuse_unshown("prompt_logprobs", "return_token_ids", "return_tokens_as_token_ids")
        ignored += budget_without_effect(payload, model)
        call = payload.identify(call)
        generation = message_generation(payload, call, model, _form(payload, call, model))
        return with_own(replace(generation, ignored=ignored, request_id=call.request_id), own)

    def error(self, error: LmiError, model: ServedModel | None, formatter: OutputFormatter | None) -> Answer:
        return errors.error_answer(error, model)

    def identified(self, answer: Answer, request_id: str) -> Answer:
        return errors.add_request_id(answer, request_id)


def _form(payload: MessagesRequest, call: Call, model: ServedModel) -> ChatForm:
    assert payload.max_tokens is not None
    omitted = payload.thinking is not None and payload.thinking.display == "omitted"
    asked = MessageAnswer(call.request_id, payload.max_tokens, model.backend.max_length, not omitted)
    formatter = AnthropicStreamFormatter if payload.stream else AnthropicFormatter
    return ChatForm(
        lambda answer: formatter(asked, replace(answer, response_id=f"msg_{asked.request_id}")), details=True
    )

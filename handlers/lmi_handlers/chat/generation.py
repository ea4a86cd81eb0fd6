"""Conversion of a chat completion request, in OpenAI's or LMI's dialect, into a generation request."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from lmi_core.errors import InvalidPayload
from lmi_core.errors.did_you_mean import did_you_mean
from lmi_core.formatter import ChatAnswer, OutputFormatter
from lmi_core.generation.chat import Chat
from lmi_core.generation.request import GenerationRequest
from lmi_core.handler import Call, Generation
from lmi_core.parsing.reasoning.reader import Reasoning
from lmi_core.parsing.tool_calls.template_formats import template_format
from lmi_core.payloads.payload import quote
from lmi_core.served_model import ServedModel
from lmi_core.texts.chat_template import RefusedByTemplate, find_chat_template, first_dropped_message
from lmi_handlers.chat.images import image_sources
from lmi_handlers.chat.messages import ROLES, AnyToolCall, Message, ToolCall, template_messages
from lmi_handlers.chat.reasoning import ReasoningUse, use_reasoning
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.chat.tools import ToolUse, use_tools
from lmi_handlers.fields.guides import Guide
from lmi_handlers.fields.passed import TRANSFERS

UP_TO_THE_CONTEXT = 2**31  # a number of tokens that is lowered to what fits in the model's context


class ChatForm(NamedTuple):
    """The output formatter of a chat's answer, and its features."""

    new_formatter: Callable[[ChatAnswer], OutputFormatter]
    details: bool = False  # whether to write token ids and the prompt's details


def chat_generation(payload: ChatRequest, call: Call, model: ServedModel, form: ChatForm) -> Generation:
    """Render the chat template and return the generation. Raise InvalidPayload if the chat is invalid."""
    template = _template(payload, model)
    tools = _tools(payload, model, template, model.options.enable_auto_tool_choice)
    guide = payload.guide(tools.guide, "function_call" if payload.functions else "tool_choice")
    images = image_sources(payload, model)
    use = use_reasoning(payload, model, _prompt(payload, model, template, tools), guide, tools.parser is not None)
    answer = _answer(payload, call, model, tools, use.reasoning)
    if form.details:
        # As in vLLM, details of generated tokens are omitted if the reasoning is hidden.
        shown = answer.reasoning is None or answer.include_reasoning
        answer = replace(
            answer,
            log_probs=answer.log_probs and shown,
            token_ids=bool(payload.return_token_ids) and shown,
            prompt_token_ids=bool(payload.return_token_ids),
            prompt_text=bool(payload.return_prompt_text),
            prompt_log_probs=payload.prompt_log_probs,
        )
    else:
        payload.refuse_unshown("prompt_logprobs", "return_token_ids", "return_prompt_text", *TRANSFERS)
    request = replace(_request(payload, model, use, guide, tools.markers), images=images)
    return Generation((request,), form.new_formatter(answer))


def chat_prompt(payload: ChatRequest, model: ServedModel) -> str:
    """Render a chat without images by the chat template. Raise InvalidPayload if the template refuses it."""
    template = _template(payload, model)
    return _prompt(payload, model, template, _tools(payload, model, template, automatic=False))


def _template(payload: ChatRequest, model: ServedModel) -> str:
    if payload.chat_template is not None and not model.options.trust_request_chat_template:
        raise InvalidPayload(
            "`chat_template` is not allowed in requests, because it is a program: set option.chat_template in the "
            "model "
            "directory, or option.trust_request_chat_template=true if every client is trusted"
        )
    configured = payload.chat_template or model.chat_template
    with_tools = bool(payload.tools or payload.functions)
    return find_chat_template(configured, model.backend.tokenizer, with_tools, payload.messages_field)


def _tools(payload: ChatRequest, model: ServedModel, template: str, automatic: bool) -> ToolUse:
    tools, choice = payload.offered_tools, payload.choice
    if not tools and choice is None:
        return ToolUse()
    return use_tools(
        tools,
        choice,
        payload.parallel_tool_calls is not False and not payload.functions,
        template,
        model.options.tool_call_parser,
        automatic,
        payload.tool_names,
    )


def _prompt(payload: ChatRequest, model: ServedModel, template: str, tools: ToolUse) -> str:
    continues = bool(payload.continue_final_message)
    given = with_call_ids(with_tool_messages(payload.messages, template), template)
    backend = model.backend
    messages = template_messages(given, template, backend)
    begins = not continues and payload.add_generation_prompt is not False
    of_client = payload.chat_template is not None
    chat = Chat(messages, tools.definitions, payload.template_arguments, begins, continues, of_client)
    try:
        prompt = backend.tokenizer.render_chat(chat, template)
        left_out = first_dropped_message(chat, template, backend.tokenizer, ROLES)
    except RefusedByTemplate as error:
        if payload.chat_template is None:
            raise RefusedByTemplate(error.reason, payload.messages_field) from None
        raise InvalidPayload(f"`chat_template` cannot be used for these messages: {error.reason}") from None
    if left_out is not None:
        role = payload.messages[left_out].role
        raise InvalidPayload(
            f"`{payload.messages_field}.{left_out}.role` must be one that the chat template writes: it leaves out the "
            f"messages of this role.{did_you_mean(role, ROLES)} Given: {quote(role)}"
        )
    return prompt


def with_tool_messages(messages: Iterable[Message], template: str) -> list[Message]:
    """Return the messages with function calls and results as tool calls, the only form in chat templates."""
    written: list[Message] = []
    ids: list[str] = []  # of all calls in the messages so far
    num_answered = 0
    for message in messages:
        if message.function_call is not None:
            ids.append(call_id(template, message.function_call.name, len(ids)))
            call = ToolCall(id=ids[-1], function=message.function_call)
            message = message.model_copy(update={"tool_calls": [call], "function_call": None})
        elif message.role == "function":
            if num_answered == len(ids):  # a result whose call is not in the messages
                ids.append(call_id(template, str(getattr(message, "name", "")), len(ids)))
            given = getattr(message, "tool_call_id", None)
            message = message.model_copy(update={"role": "tool", "tool_call_id": given or ids[num_answered]})
            num_answered += 1
        written.append(message)
    return written


def call_id(template: str, name: str, number: int) -> str:
    """Return a call id that the template accepts: with the function for Kimi K2, of nine characters for Mistral."""
    return f"functions.{name}:{number}" if template_format(template) == "kimi_k2" else f"call{number % 100_000:05}"


def with_call_ids(messages: Iterable[Message], template: str) -> list[Message]:
    """Return the messages with an id for each tool call and result.

    A result without an id belongs to the first call without a result; with a `name`, to the first of that function.
    """
    written: list[Message] = []
    waiting: list[AnyToolCall] = []  # calls so far that have no result yet
    number = 0
    for message in messages:
        if message.tool_calls:
            calls = [
                call
                if call.id
                else call.model_copy(update={"id": call_id(template, call.function.name, number + place)})
                for place, call in enumerate(message.tool_calls)
            ]
            number += len(calls)
            waiting += calls
            message = message.model_copy(update={"tool_calls": calls})
        elif message.role == "tool" and (answered := _find_call(message, waiting)) is not None:
            waiting.remove(answered)
            message = message.model_copy(update={"tool_call_id": answered.id})
        written.append(message)
    return written


def _find_call(result: Message, waiting: Iterable[AnyToolCall]) -> AnyToolCall | None:
    """Return the call that a result answers, if it is one of these."""
    given, name = getattr(result, "tool_call_id", None), getattr(result, "name", None)
    if given is not None:
        return next((call for call in waiting if call.id == given), None)
    return next((call for call in waiting if name in (None, call.function.name)), None)


def _request(
    payload: ChatRequest, model: ServedModel, use: ReasoningUse, guide: Guide | None, markers: tuple[str, ...]
) -> GenerationRequest:
    further: dict[str, Any] = {
        "logprobs": payload.top_logprobs or None,
        "prompt_logprobs": payload.prompt_log_probs,
    }
    if payload.max_completion_tokens is not None:  # takes precedence over the older name, as in vLLM
        further |= {"max_completion_tokens": payload.max_completion_tokens, "max_tokens": None}
    parameters, names = payload.parameters(model, further, guide)
    parameters |= use.limit
    if use.before_guide is not None:
        parameters["guided_reasoning"] = use.before_guide
    fits_context = "max_new_tokens" not in parameters
    parameters.setdefault("max_new_tokens", UP_TO_THE_CONTEXT)
    names |= {"inputs": "messages", "logprobs": "top_logprobs"}
    return GenerationRequest(
        use.prompt,
        parameters,
        add_special_tokens=bool(payload.add_special_tokens),
        names=names,
        fits_context=fits_context,
        markers=markers,
    )


def _answer(
    payload: ChatRequest, call: Call, model: ServedModel, tools: ToolUse, reasoning: Reasoning | None
) -> ChatAnswer:
    return ChatAnswer(
        response_id=f"chatcmpl-{call.request_id}",
        model=model.name_asked(payload.model),
        tokenizer=model.backend.tokenizer,
        log_probs=bool(payload.logprobs),
        tool_calls=tools.parser,
        named_tool=tools.named,
        older_calls=bool(payload.functions),
        echo=payload.echo_text,
        include_usage=payload.include_usage,
        continuous_usage=payload.continuous_usage,
        reasoning=reasoning,
        include_reasoning=payload.include_reasoning is not False,
        token_ids_as_text=bool(payload.return_tokens_as_token_ids),
        fingerprint=model.fingerprint,
    )

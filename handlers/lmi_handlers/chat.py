"""Chat completions: the request, which OpenAI's dialect and LMI's have in common."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from lmi_core.chat import Chat
from lmi_core.chat_template import find_chat_template
from lmi_core.handler import Call, Generation
from lmi_core.model import Model
from lmi_core.reasoning.parser import AnswerContext
from lmi_core.reasoning.reader import Reasoning
from lmi_core.request import GenerationRequest
from lmi_handlers.chat_images import image_sources
from lmi_handlers.chat_messages import Message, template_messages
from lmi_handlers.chat_tools import GivenToolChoice, Tool, ToolUse, use_tools
from lmi_handlers.guide_fields import Guide
from lmi_handlers.openai_tolerance import take_fields
from lmi_handlers.sampling_fields import CallFields

UP_TO_THE_CONTEXT = 2**31  # tokens; what is beyond the model's context is cut
FORMATTERS = ("openai_chat", "openai_chat_stream", "lmi_chat", "lmi_chat_jsonlines", "lmi_chat_sse")
# How a template is used; the others are names in it.
TEMPLATE_CALL = ("chat_template", "conversation", "messages", "return_dict", "return_tensors", "tokenize", "tools")
THINKING = ("enable_thinking", "thinking")  # what templates call the switch

EXAMPLE: dict[str, JsonValue] = {
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is deep learning?"},
    ],
    "logprobs": True,
    "top_logprobs": 1,
    "max_tokens": 256,
}

logger = logging.getLogger(__name__)


class ChatRequest(CallFields):
    """A chat completion request of OpenAI's, with the parameters that vLLM and LMI add."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    messages: list[Message] = Field(min_length=1, description="The conversation so far.")
    max_completion_tokens: int | None = Field(None, ge=1, description="The newer name of `max_tokens`.")
    max_tokens: int | None = Field(None, ge=1, description="The most tokens to generate. Default: what fits.")
    logprobs: bool | None = Field(None, description="Answer with each token's log probability.")
    top_logprobs: int | None = Field(
        None, ge=0, le=20, description="With `logprobs`: so many likeliest tokens in each token's place."
    )
    tools: list[Tool] | None = Field(None, description="The functions that the model may call.")
    tool_choice: GivenToolChoice | None = Field(None, description="none, auto, required, or the function to call.")
    parallel_tool_calls: bool | None = Field(None, description="Whether one answer may call several. Default: true.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="For the chat template, as `reasoning_effort`; none also as `enable_thinking`: false."
    )
    include_reasoning: bool | None = Field(None, description="Whether the answer holds the reasoning. Default: true.")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Further names for the chat template.")
    documents: list[dict[str, Any]] | None = Field(None, description="For the chat template, as `documents`.")
    add_generation_prompt: bool | None = Field(None, description="Whether the prompt begins an answer. Default: true.")
    continue_final_message: bool | None = Field(None, description="Go on within the last message.")
    add_special_tokens: bool | None = Field(None, description="Beside those of the chat template. Default: false.")
    echo: Literal[False] | None = Field(None, description="Only false: the last message is no part of the answer.")

    @model_validator(mode="after")
    def _likeliest_tokens_are_log_probabilities(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("`top_logprobs` is only for `logprobs`: true")
        return self

    @model_validator(mode="after")
    def _begins_or_continues(self) -> "ChatRequest":
        if self.continue_final_message and self.add_generation_prompt:
            raise ValueError("`continue_final_message` and `add_generation_prompt` exclude each other")
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise ValueError("`continue_final_message` is only for chats whose last message is the assistant's")
        return self

    @model_validator(mode="after")
    def _names_for_the_template(self) -> "ChatRequest":
        for name in TEMPLATE_CALL:
            if name in (self.chat_template_kwargs or {}):
                raise ValueError(f"`chat_template_kwargs` must hold names for the template. Given: {name}")
        return self

    @property
    def template_arguments(self) -> dict[str, Any]:
        """What the template gets beside messages and tools; `chat_template_kwargs` come first."""
        arguments: dict[str, Any] = {}
        if self.documents is not None:
            arguments["documents"] = self.documents
        if self.reasoning_effort is not None:
            arguments |= {"reasoning_effort": self.reasoning_effort, "enable_thinking": self.reasoning_effort != "none"}
        return arguments | (self.chat_template_kwargs or {})


def read_chat(given: Mapping[str, Any], model: Model) -> tuple[ChatRequest, tuple[str, ...]]:
    """Return the request and the names of the fields that were ignored. Raises InvalidPayload."""
    return take_fields(given, ChatRequest, model.plan.options.strict_parameters)


def chat_generation(payload: ChatRequest, call: Call, model: Model, formatter: str) -> Generation:
    """Renders the chat template. Raises InvalidPayload."""
    if payload.user is not None:
        logger.info("request %s is of user %r", call.request_id, payload.user)
    template = find_chat_template(model.plan.chat_template, model.backend.tokenizer, bool(payload.tools))
    tools = use_tools(
        payload.tools or [],
        payload.tool_choice,
        payload.parallel_tool_calls is not False,
        template,
        model.plan.options.tool_call_parser,
    )
    guide = payload.guide(tools.guide)
    images = image_sources(payload.messages, model)
    prompt, reasoning = _prompt(payload, model, template, tools, guided=guide is not None)
    arguments = _formatter_arguments(payload, call, model, tools, reasoning) if formatter in FORMATTERS else {}
    request = replace(_request(payload, model, prompt, guide), images=images)
    return Generation((request,), formatter, arguments)


def _prompt(
    payload: ChatRequest, model: Model, template: str, tools: ToolUse, *, guided: bool
) -> tuple[str, Reasoning | None]:
    """The rendered chat, and how the answer's reasoning is found.

    A guide holds from the first token on, so a guided answer has no reasoning: where the template opened it, it ends.
    """
    continues = bool(payload.continue_final_message)
    messages = template_messages(payload.messages, template, model.backend)
    begins = not continues and payload.add_generation_prompt is not False
    chat = Chat(messages, tools.definitions, payload.template_arguments, begins, continues)
    prompt = model.backend.tokenizer.render_chat(chat, template)
    reasoning_format = model.plan.options.reasoning_format
    if reasoning_format is None:
        return prompt, None
    if guided:
        return prompt if continues else reasoning_format.close(prompt), None
    disabled = any(payload.template_arguments.get(name) is False for name in THINKING)
    continued = payload.messages[-1].text if continues else ""
    context = AnswerContext(prompt, continued, disabled, tools=tools.parser is not None)
    return prompt, Reasoning(reasoning_format, model.backend.tokenizer, context)


def _request(payload: ChatRequest, model: Model, prompt: str, guide: Guide | None) -> GenerationRequest:
    further: dict[str, Any] = {"logprobs": payload.top_logprobs or None}
    if payload.max_completion_tokens != payload.max_tokens:
        further["max_completion_tokens"] = payload.max_completion_tokens
    parameters, names = payload.parameters(model, further, guide)
    fits_context = "max_new_tokens" not in parameters
    parameters.setdefault("max_new_tokens", UP_TO_THE_CONTEXT)
    names |= {"inputs": "messages", "logprobs": "top_logprobs"}
    return GenerationRequest(
        prompt, parameters, add_special_tokens=bool(payload.add_special_tokens), names=names, fits_context=fits_context
    )


def _formatter_arguments(
    payload: ChatRequest, call: Call, model: Model, tools: ToolUse, reasoning: Reasoning | None
) -> dict[str, Any]:
    return {
        "response_id": f"chatcmpl-{call.request_id}",
        "model": model.name_asked(payload.model),
        "tokenizer": model.backend.tokenizer,
        "log_probs": bool(payload.logprobs),
        "tool_calls": tools.parser,
        "named_tool": tools.named,
        "include_usage": payload.include_usage,
        "continuous_usage": payload.continuous_usage,
        "reasoning": reasoning,
        "include_reasoning": payload.include_reasoning is not False,
        "token_ids_as_text": bool(payload.return_tokens_as_token_ids),
    }

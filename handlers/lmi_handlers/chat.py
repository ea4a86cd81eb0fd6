"""Chat completions: the request, which OpenAI's dialect and LMI's have in common."""

import logging
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from lmi_core.chat import Chat
from lmi_core.chat_template import find_chat_template
from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call, Generation
from lmi_core.model import Model
from lmi_core.request import GenerationRequest
from lmi_handlers.chat_images import image_sources
from lmi_handlers.chat_messages import Message, template_messages
from lmi_handlers.chat_tools import ANY_OBJECT, GivenToolChoice, Tool, ToolUse, use_tools
from lmi_handlers.sampling_fields import CallFields

UP_TO_THE_CONTEXT = 2**31  # tokens; what is beyond the model's context is cut
FORMATTERS = ("openai_chat", "openai_chat_stream", "lmi_chat", "lmi_chat_jsonlines", "lmi_chat_sse")

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


class JsonSchema(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = Field(None, description="The answer is of the schema, whatever is given.")


class ResponseFormat(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_is_given(self) -> "ResponseFormat":
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("must have `json_schema` where its `type` says so, and only there")
        return self

    @property
    def guide(self) -> dict[str, Any] | None:
        if self.type == "text":
            return None
        return (self.json_schema and self.json_schema.schema_) or ANY_OBJECT


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
    response_format: ResponseFormat | None = Field(None, description="Text, any JSON object, or JSON of a schema.")
    tools: list[Tool] | None = Field(None, description="The functions that the model may call.")
    tool_choice: GivenToolChoice | None = Field(None, description="none, auto, required, or the function to call.")
    parallel_tool_calls: bool | None = Field(None, description="Whether one answer may call several. Default: true.")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="Further names for the chat template.")

    @model_validator(mode="after")
    def _likeliest_tokens_are_log_probabilities(self) -> "ChatRequest":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("`top_logprobs` is only for `logprobs`: true")
        return self


def chat_generation(payload: ChatRequest, call: Call, model: Model, formatter: str) -> Generation:
    """Renders the chat template. Raises InvalidPayload."""
    if payload.user is not None:
        logger.info("request %s is of user %r", call.request_id, payload.user)
    tokenizer = model.backend.tokenizer
    template = find_chat_template(model.plan.chat_template, tokenizer, bool(payload.tools))
    tools = use_tools(
        payload.tools or [],
        payload.tool_choice,
        payload.parallel_tool_calls is not False,
        template,
        model.plan.options.tool_call_parser,
        model.plan.options.enable_auto_tool_choice,
    )
    images = image_sources(payload.messages, model)
    messages = template_messages(payload.messages, template, model.backend)
    prompt = tokenizer.render_chat(Chat(messages, tools.definitions, payload.chat_template_kwargs or {}), template)
    arguments = _formatter_arguments(payload, call, model, tools) if formatter in FORMATTERS else {}
    return Generation((replace(_request(payload, prompt, tools), images=images),), formatter, arguments)


def _request(payload: ChatRequest, prompt: str, tools: ToolUse) -> GenerationRequest:
    parameters, names = payload.translated(
        {"max_completion_tokens": payload.max_completion_tokens, "logprobs": payload.top_logprobs or None}
    )
    fits_context = "max_new_tokens" not in parameters
    parameters.setdefault("max_new_tokens", UP_TO_THE_CONTEXT)
    field, guide = _guide(payload, tools)
    if guide is not None:
        parameters["guided_json"] = guide
    names |= {"inputs": "messages", "logprobs": "top_logprobs", "guided_json": field}
    return GenerationRequest(
        prompt,
        parameters,
        add_special_tokens=False,
        names=names,
        fits_context=fits_context,
        markers=tools.markers,
    )


def _guide(payload: ChatRequest, tools: ToolUse) -> tuple[str, dict[str, Any] | None]:
    """The one JSON schema that the answer must be of, and the field that asks for it."""
    guides = {
        "tool_choice": tools.guide,
        "response_format": payload.response_format.guide if payload.response_format else None,
        "guided_json": payload.guided_json,
    }
    given = [(field, guide) for field, guide in guides.items() if guide is not None]
    if len(given) > 1:
        raise InvalidPayload(f"`{given[0][0]}` and `{given[1][0]}` exclude each other: both say what the answer is")
    return given[0] if given else ("guided_json", None)


def _formatter_arguments(payload: ChatRequest, call: Call, model: Model, tools: ToolUse) -> dict[str, Any]:
    return {
        "response_id": f"chatcmpl-{call.request_id}",
        "model": model.name,
        "tokenizer": model.backend.tokenizer,
        "log_probs": bool(payload.logprobs),
        "tool_calls": tools.parser,
        "named_tool": tools.named,
        "include_usage": payload.include_usage,
    }

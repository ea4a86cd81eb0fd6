"""Conversion of a request into a chat, and of the chat into a generation."""

from dataclasses import replace
from typing import Any, ClassVar

from lmi_core.errors import InvalidPayload
from lmi_core.handler import Call, Generation
from lmi_core.served_model import ServedModel
from lmi_core.texts.chat_template import RefusedByTemplate
from lmi_handlers.anthropic.messages import ImagePart, chat_messages
from lmi_handlers.anthropic.payload import CountTokensRequest, OutputFormat
from lmi_handlers.anthropic.tolerance import BUDGET
from lmi_handlers.chat.generation import ChatForm, chat_generation
from lmi_handlers.chat.reasoning import SWITCHES, takes_limit
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.fields.guides import Guide
from lmi_handlers.fields.offered_tools import own_tools
from lmi_handlers.fields.passed import PassedFields


class TranslatedChat(ChatRequest):
    """A chat whose answer may have to follow a JSON schema that the client gave as `schema_field`."""

    image_member: ClassVar[str] = ".source"

    output_schema: dict[str, Any] | None = None
    schema_field: str = ""

    def part_path(self, message: int, part: int) -> str:
        """Return the path of an image's block."""
        found = (self.messages[message].content or [])[part]
        return found.path if isinstance(found, ImagePart) else super().part_path(message, part)

    def _guides(self) -> list[Guide]:
        return [*super()._guides(), Guide("guided_json", self.output_schema, self.schema_field)]


def message_generation(payload: CountTokensRequest, call: Call, model: ServedModel, form: ChatForm) -> Generation:
    """Return the generation of the next message.

    Raise InvalidPayload if the conversation is invalid. System messages stay in place, unless the chat template only
    accepts them at the start.
    """
    try:
        return _generation(payload, call, model, form)
    except RefusedByTemplate:
        if not any(message.role == "system" for message in payload.messages):
            raise
    return _generation(payload, call, model, form, system_first=True)


def _generation(
    payload: CountTokensRequest, call: Call, model: ServedModel, form: ChatForm, *, system_first: bool = False
) -> Generation:
    chat = _chat(payload, model, system_first)
    generation = chat_generation(chat, call, model, form)
    (request,) = generation.requests
    names = {**request.names, "reasoning_budget": BUDGET if payload.thinking else "thinking_token_budget"}
    if payload.stop_sequences is not None:
        names["stop_sequences"] = "stop_sequences"
    return replace(generation, requests=(replace(request, names=names, fits_context=True),))


def _chat(payload: CountTokensRequest, model: ServedModel, system_first: bool) -> ChatRequest:
    """Return the chat without validating it again."""
    messages = chat_messages(payload, system_first=system_first)
    if not messages:
        raise InvalidPayload("`messages` must contain a text")
    schema, field = _output_schema(payload)
    fields: dict[str, Any] = {name: getattr(payload, name) for name in PassedFields.model_fields}
    fields |= _thinking(payload, model) | {
        "messages": messages,
        "stop": payload.stop_sequences if payload.stop is None else payload.stop,
        "tools": [tool.for_chat for tool in own_tools(payload.tools)] if payload.tools else None,
        "tool_choice": payload.tool_choice.for_chat if payload.tool_choice else None,
        "parallel_tool_calls": not (payload.tool_choice and payload.tool_choice.disable_parallel_tool_use),
        "continue_final_message": messages[-1].role == "assistant",
        "output_schema": schema,
        "schema_field": field,
    }
    return TranslatedChat.model_construct(**fields)


def _thinking(payload: CountTokensRequest, model: ServedModel) -> dict[str, Any]:
    """Return the chat's reasoning fields; the client's own template variables take precedence over `thinking`."""
    fields: dict[str, Any] = {"chat_template_kwargs": payload.chat_template_kwargs}
    if payload.output_config is not None and payload.output_config.effort is not None:
        fields["reasoning_effort"] = payload.output_config.effort
    thinking = payload.thinking
    if thinking is None:
        return fields
    if thinking.budget_tokens is not None and takes_limit(model):
        fields["thinking_token_budget"] = thinking.budget_tokens
    if thinking.type != "adaptive":  # otherwise, the template decides
        switches = dict.fromkeys(SWITCHES, thinking.type == "enabled")
        fields["chat_template_kwargs"] = switches | (payload.chat_template_kwargs or {})
    return fields


def _output_schema(payload: CountTokensRequest) -> tuple[dict[str, Any] | None, str]:
    older: OutputFormat | None = payload.output_format
    if older is not None:
        return older.schema_, "output_format"
    newer = payload.output_config.format if payload.output_config else None
    return (None if newer is None else newer.schema_), "output_config.format"

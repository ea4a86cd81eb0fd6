"""The types of Anthropic's messages, their events and errors."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, AnswerForm, failures, stream_forms
from lmi_handlers.answers.openai import STATUSES, TransferMembers
from lmi_handlers.base.anthropic_errors import OVERLOADED_STATUS

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


MessageText = TypedDict("MessageText", {"type": Literal["text"], "text": str})
MessageThinking = TypedDict("MessageThinking", {"type": Literal["thinking"], "thinking": str, "signature": str})


class MessageToolUse(TypedDict):
    """A use of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


MessageBlock = MessageText | MessageThinking | MessageToolUse


ThinkingTokens = TypedDict("ThinkingTokens", {"thinking_tokens": int})


class MessageUsage(TypedDict):
    """The number of tokens; `input_tokens` does not include tokens from the prefix cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: NotRequired[ThinkingTokens]


class MessageStop(TypedDict):
    """The stop reason of a message; all null before its end."""

    stop_reason: StopReason | None
    stop_sequence: str | None
    stop_details: None


class AnsweredMessage(MessageStop, TransferMembers):
    """A message of the model."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[MessageBlock]
    usage: MessageUsage


class AnthropicErrorContent(TypedDict):
    """The type and message of an error."""

    type: str
    message: str
    details: NotRequired[dict[str, str]]


class AnthropicError(TypedDict):
    """An error in Anthropic's form."""

    type: Literal["error"]
    error: AnthropicErrorContent
    request_id: str | None


PingEvent = TypedDict("PingEvent", {"type": Literal["ping"]})
MessageEvent = Annotated[
    dict[str, Any],
    Field(title="RawMessageStreamEvent", description="An event of a streamed message, as in Anthropic's API."),
]


# The number of tokens before context editing, which does not happen here.
ContextManagement = TypedDict("ContextManagement", {"original_input_tokens": int})
MessageTokens = TypedDict("MessageTokens", {"input_tokens": int, "context_management": ContextManagement})


class AnthropicModel(TypedDict):
    """A served model, or an adapter of one, as Anthropic's clients see it."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int | None
    max_tokens: int | None


class AnthropicModels(TypedDict):
    """A page of the served models, as Anthropic's clients see it."""

    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


MESSAGES = (AnswerForm(AnsweredMessage), *stream_forms(MessageEvent | PingEvent | AnthropicError, EVENTS))
ERRORS = (failures(AnthropicError, *STATUSES, OVERLOADED_STATUS),)

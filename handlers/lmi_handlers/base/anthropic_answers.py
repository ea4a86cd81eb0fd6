"""The types of Anthropic's messages, their events and errors."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, AnswerForm, client_type, failures, streamed
from lmi_handlers.answers.openai import STATUSES
from lmi_handlers.base.anthropic_errors import OVERLOADED_STATUS


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


class PingEvent(TypedDict):
    """A sign of life."""

    type: Literal["ping"]


AnsweredMessage = client_type("Message", "A message of the model, as in Anthropic's API.")
MessageEvent = client_type("RawMessageStreamEvent", "An event of a streamed message, as in Anthropic's API.")


class ContextManagement(TypedDict):
    """The number of tokens before context editing, which does not happen here."""

    original_input_tokens: int


class MessageTokens(TypedDict):
    """The number of tokens of a message's prompt."""

    input_tokens: int
    context_management: ContextManagement


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


MESSAGES = (AnswerForm(AnsweredMessage), *streamed(MessageEvent | PingEvent | AnthropicError, EVENTS))
ERRORS = (failures(AnthropicError, *STATUSES, OVERLOADED_STATUS),)

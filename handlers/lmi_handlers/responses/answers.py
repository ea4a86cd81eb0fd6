"""The types of responses, their events and the answers about kept ones."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, AnswerForm, streamed
from lmi_handlers.answers.openai import TokenLogProb, TransferMembers
from lmi_handlers.responses.items import Status

ResponseStatus = Literal["completed", "failed", "in_progress", "cancelled", "incomplete"]


class OutputText(TypedDict):
    """A text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogProb]


class ReasoningText(TypedDict):
    """A text of the reasoning."""

    type: Literal["reasoning_text"]
    text: str


class SummaryText(TypedDict):
    """A text of a summary of the reasoning."""

    type: Literal["summary_text"]
    text: str


class OutputMessage(TypedDict):
    """A message of the model."""

    id: str
    type: Literal["message"]
    status: Status
    role: Literal["assistant"]
    content: list[OutputText]


class OutputReasoning(TypedDict):
    """The reasoning of the model."""

    id: str
    type: Literal["reasoning"]
    status: Status
    summary: list[SummaryText]
    content: list[ReasoningText]
    encrypted_content: None


class OutputCall(TypedDict):
    """A call of a function."""

    id: str
    type: Literal["function_call"]
    status: Status
    call_id: str
    name: str
    arguments: str


ResponseItem = OutputMessage | OutputReasoning | OutputCall


class ResponseFailure(TypedDict):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(TypedDict):
    """Why a response is not complete."""

    reason: Literal["max_output_tokens"]


class AskedReasoning(TypedDict):
    """The reasoning that the request asked for."""

    effort: str | None
    summary: str | None


class AskedText(TypedDict):
    """The form of the text that the request asked for."""

    format: dict[str, Any]
    verbosity: str


class InputTokenDetails(TypedDict):
    """How many of the prompt's tokens the prefix cache held."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokenDetails(TypedDict):
    """How many of the generated tokens were reasoning."""

    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """The number of tokens."""

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: OutputTokenDetails
    total_tokens: int


class OpenAiResponse(TransferMembers):
    """A response, with the request's own members; some are always null, as they are of OpenAI's service alone."""

    id: str
    object: Literal["response"]
    created_at: int
    status: ResponseStatus
    completed_at: int | None
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    output: list[ResponseItem]
    usage: ResponseUsage | None
    model: str
    background: bool
    frequency_penalty: float
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: AskedReasoning
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: AskedText
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: str
    user: str | None
    access_programs: None
    conversation: None
    image: None
    input_transformations: None
    moderation: None
    prompt: None
    prompt_cache_diagnostics: None
    prompt_cache_options: None
    prompt_cache_retention: None
    tool_usage: None


ResponseEvent = Annotated[
    dict[str, Any],
    Field(title="ResponseStreamEvent", description="An event of a streamed response, as in OpenAI's API."),
]


class DeletedResponse(TypedDict):
    """A response that is no longer kept."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItems(TypedDict):
    """A page of the items that a response was made of."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(TypedDict):
    """The number of tokens of a response's prompt."""

    object: Literal["response.input_tokens"]
    input_tokens: int


RESPONSES = (AnswerForm(OpenAiResponse), *streamed(ResponseEvent, EVENTS))

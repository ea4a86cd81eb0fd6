"""The types of responses, their events, and the answers about stored ones."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, AnswerForm, stream_forms
from lmi_handlers.answers.openai import CompletionTokenDetails, TokenLogProb, TransferMembers
from lmi_handlers.responses.items import Status

ResponseStatus = Literal["completed", "failed", "in_progress", "cancelled", "incomplete"]


class OutputText(TypedDict):
    """A text in a message."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogProb]


ReasoningText = TypedDict("ReasoningText", {"type": Literal["reasoning_text"], "text": str})
SummaryText = TypedDict("SummaryText", {"type": Literal["summary_text"], "text": str})
OutputItem = TypedDict("OutputItem", {"id": str, "status": Status})


class OutputMessage(OutputItem):
    """A message of the model."""

    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText]


class OutputReasoning(OutputItem):
    """The reasoning of the model."""

    type: Literal["reasoning"]
    summary: list[SummaryText]
    content: list[ReasoningText]
    encrypted_content: None


class OutputNamedCall(OutputItem):
    """The members of calls of functions and custom tools."""

    call_id: str
    namespace: NotRequired[str]
    name: str


class OutputCall(OutputNamedCall):
    """A call of a function."""

    type: Literal["function_call"]
    arguments: str


class OutputCustomCall(OutputNamedCall):
    """A call of a custom tool."""

    type: Literal["custom_tool_call"]
    input: str


class OutputSearchCall(OutputItem):
    """A call of the client's search for tools; the arguments are a text only if they are not valid JSON."""

    type: Literal["tool_search_call"]
    call_id: str
    execution: Literal["client"]
    arguments: Any


ResponseItem = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall | OutputSearchCall


ResponseFailure = TypedDict("ResponseFailure", {"code": str, "message": str})
IncompleteDetails = TypedDict("IncompleteDetails", {"reason": Literal["max_output_tokens"]})
AskedReasoning = TypedDict("AskedReasoning", {"effort": str | None, "summary": str | None})
AskedText = TypedDict("AskedText", {"format": dict[str, Any], "verbosity": str})
InputTokenDetails = TypedDict("InputTokenDetails", {"cached_tokens": int, "cache_write_tokens": int})


class ResponseUsage(TypedDict):
    """The number of tokens."""

    input_tokens: int
    input_tokens_details: InputTokenDetails
    output_tokens: int
    output_tokens_details: CompletionTokenDetails
    total_tokens: int


class OpenAiResponse(TransferMembers):
    """A response, with the request's own members; members specific to OpenAI's service are always null."""

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


DeletedResponse = TypedDict("DeletedResponse", {"id": str, "object": Literal["response"], "deleted": Literal[True]})


class InputItems(TypedDict):
    """A page of a response's input items."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


InputTokens = TypedDict("InputTokens", {"object": Literal["response.input_tokens"], "input_tokens": int})
RESPONSES = (AnswerForm(OpenAiResponse), *stream_forms(ResponseEvent, EVENTS))

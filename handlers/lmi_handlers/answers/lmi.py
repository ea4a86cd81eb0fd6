"""The forms of the answers on LMI's routes, by request and configuration."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, JSON_LINES, TEXT, AnswerForm, failures, stream_forms
from lmi_core.generation.output import FinishReason
from lmi_handlers.answers.openai import (
    AnswerMessage,
    ChatChunk,
    ChatCompletion,
    ChatUsage,
    CompletionChunk,
    TextCompletion,
    TokenLogProb,
)
from lmi_schemas.lmi_answers import (
    AsyncAnswer,
    AsyncChunk,
    DynamicBatchAnswer,
    DynamicBatchChunk,
    DynamicBatchError,
    LmiAnswer,
    LmiChunk,
    LmiFailedChunk,
    LmiFailure,
    TgiCompatAnswer,
    TgiCompatChunk,
)
from lmi_schemas.vllm_errors import VllmError

LmiChatLogProbs = TypedDict("LmiChatLogProbs", {"content": list[TokenLogProb]})


class LmiChatChoice(TypedDict):
    """An answer to a chat."""

    index: int
    message: AnswerMessage
    logprobs: LmiChatLogProbs | None
    finish_reason: FinishReason


class LmiChatMembers(TypedDict):
    """The members of answers in LMI's chat schema, whole or in chunks."""

    id: str
    created: int
    usage: NotRequired[ChatUsage]
    error: NotRequired[str]


class LmiChatCompletion(LmiChatMembers):
    """A whole answer in LMI's chat schema."""

    object: Literal["chat.completion"]
    choices: list[LmiChatChoice]


class ChatDelta(TypedDict):
    """A piece of a message."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    tool_calls: NotRequired[list[dict[str, Any]]]
    function_call: NotRequired[dict[str, Any]]
    reasoning_content: NotRequired[str]
    reasoning: NotRequired[str]


class LmiChatChunkChoice(TypedDict):
    """The part of a chunk that belongs to one choice."""

    index: int
    delta: ChatDelta
    logprobs: list[LmiChatLogProbs] | None
    finish_reason: FinishReason | None


class LmiChatChunk(LmiChatMembers):
    """A line or an event of a streamed answer in LMI's chat schema."""

    object: Literal["chat.completion.chunk"]
    choices: list[LmiChatChunkChoice]


# The answer to a request that starts or ends a session.
SessionResult = TypedDict("SessionResult", {"result": str})


class LmiRefusal(TypedDict):
    """An error before generation.

    If no model has seen the request, it also has the members of DJLServing's front end.
    """

    error: str
    code: int
    type: NotRequired[str]
    message: NotRequired[str]


TextVector = Annotated[list[float], Field(title="The vector of a text")]
TextVectors = Annotated[list[list[float]], Field(title="The vectors of several texts")]
TgiCompatAnswers = Annotated[list[TgiCompatAnswer], Field(title="With option.tgi_compat")]
DynamicBatchAnswers = Annotated[list[DynamicBatchAnswer], Field(title="With dynamic batching")]

CHUNK = LmiChunk | TgiCompatChunk | DynamicBatchChunk | LmiChatChunk | LmiFailedChunk | DynamicBatchError
ANSWERS = (
    AnswerForm(LmiAnswer),
    AnswerForm(LmiChatCompletion),
    AnswerForm(AsyncAnswer),
    AnswerForm(TextCompletion),
    AnswerForm(ChatCompletion),
    AnswerForm(TgiCompatAnswers),
    AnswerForm(DynamicBatchAnswers),
    AnswerForm(TextVector),
    AnswerForm(TextVectors),
    AnswerForm(SessionResult),
    *stream_forms(CHUNK, JSON_LINES, EVENTS),
    *stream_forms(AsyncChunk | CompletionChunk | ChatChunk | VllmError, JSON_LINES),
    AnswerForm(None, TEXT),
)
STATUSES = (403, 404, 408, 413, 415, 424, 499, 500, 503, 504)
FAILED = LmiRefusal | LmiFailure | LmiChatCompletion | DynamicBatchError
FAILED_CHUNK = LmiFailedChunk | LmiChatChunk | DynamicBatchError
ERRORS = (
    failures(FAILED, *STATUSES),
    failures(FAILED_CHUNK, *STATUSES, content_type=JSON_LINES),
    failures(FAILED_CHUNK, *STATUSES, content_type=EVENTS),
    failures(None, *STATUSES, content_type=TEXT),
)

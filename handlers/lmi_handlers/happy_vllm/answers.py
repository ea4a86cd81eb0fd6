"""The types of happy_vllm's answers."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import JSON_LINES, AnswerForm, failures, stream_forms

HappyFinishReason = Literal["stop", "length", "error", "abort", "None"]


class HappyUsage(TypedDict):
    """The number of a sequence's tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class HappyLogProb(TypedDict):
    """The log probability of a token, keyed by its id."""

    logprob: float | None
    rank: int | None
    decoded_token: str


HappyLogProbs = list[dict[str, HappyLogProb]]


class HappyAnswer(TypedDict):
    """The sequences so far, in lists with an item for each."""

    responses: list[str]
    finish_reasons: list[HappyFinishReason]
    usages: list[HappyUsage]
    prompt: NotRequired[str]
    logprobs: NotRequired[list[HappyLogProbs]]
    prompt_logprobs: NotRequired[HappyLogProbs]


class HappyError(TypedDict):
    """An error in happy_vllm's form."""

    detail: str


class AbortedRequest(TypedDict):
    """An aborted request."""

    request_id: str
    aborted: Literal[True]


class HappyInfo(TypedDict):
    """The server and the model."""

    application: str
    version: str
    vllm_version: str | None
    model_name: str
    truncation_side: Literal["left", "right"]
    max_length: int


class Liveness(TypedDict):
    """The answer of a running server."""

    alive: Literal["ok"]


class Readiness(TypedDict):
    """Whether every model accepts requests."""

    ready: Literal["ok", "ko"]


class SplitChunks(TypedDict):
    """The chunks of a text."""

    split_text: list[str]


class TextMetadata(TypedDict):
    """The number of a text's tokens, and the part that truncation would remove."""

    tokens_nb: int
    truncated_text: str


ANSWER = (AnswerForm(HappyAnswer),)
STREAM = stream_forms(HappyAnswer | HappyError, JSON_LINES)
ERRORS = (failures(HappyError, 403, 404, 408, 413, 415, 422, 424, 499, 500, 503, 504),)

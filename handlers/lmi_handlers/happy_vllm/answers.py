"""The types of happy_vllm's answers."""

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import JSON_LINES, AnswerForm, failures, stream_forms
from lmi_handlers.answers.openai import TokenCounts, VllmLogProb

HappyFinishReason = Literal["stop", "length", "error", "abort", "None"]


HappyLogProbs = list[dict[str, VllmLogProb]]


class HappyAnswer(TypedDict):
    """The sequences so far, in lists with an item for each."""

    responses: list[str]
    finish_reasons: list[HappyFinishReason]
    usages: list[TokenCounts]
    prompt: NotRequired[str]
    logprobs: NotRequired[list[HappyLogProbs]]
    prompt_logprobs: NotRequired[HappyLogProbs]


HappyError = TypedDict("HappyError", {"detail": str})
AbortedRequest = TypedDict("AbortedRequest", {"request_id": str, "aborted": Literal[True]})


class HappyInfo(TypedDict):
    """The server and the model."""

    application: str
    version: str
    vllm_version: str | None
    model_name: str
    truncation_side: Literal["left", "right"]
    max_length: int


Liveness = TypedDict("Liveness", {"alive": Literal["ok"]})
Readiness = TypedDict("Readiness", {"ready": Literal["ok", "ko"]})
SplitChunks = TypedDict("SplitChunks", {"split_text": list[str]})
TextMetadata = TypedDict("TextMetadata", {"tokens_nb": int, "truncated_text": str})
ANSWER = (AnswerForm(HappyAnswer),)
STREAM = stream_forms(HappyAnswer | HappyError, JSON_LINES)
ERRORS = (failures(HappyError, 403, 404, 408, 413, 415, 422, 424, 499, 500, 503, 504),)

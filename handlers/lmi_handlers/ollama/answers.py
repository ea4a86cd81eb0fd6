"""The types of Ollama's answers."""

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from lmi_core.calls.answer_form import TEXT, AnswerForm, failures, stream_forms
from lmi_handlers.answers.openai import PlainError

LINES = "application/x-ndjson"
OllamaFinishReason = Literal["stop", "length", "error", "abort", "load", "unload"]


class OllamaLikelyToken(TypedDict):
    """A token with its log probability."""

    token: str
    logprob: float | None
    bytes: NotRequired[list[int]]


class OllamaLogProb(OllamaLikelyToken):
    """The generated token, and the most likely ones at its position."""

    top_logprobs: NotRequired[list[OllamaLikelyToken]]


class OllamaCounts(TypedDict):
    """The end of the answer; times are in nanoseconds, and set at the end."""

    model: str
    created_at: str
    done: bool
    done_reason: NotRequired[OllamaFinishReason]
    total_duration: NotRequired[int]
    load_duration: NotRequired[int]
    prompt_eval_count: NotRequired[int]
    prompt_eval_duration: NotRequired[int]
    eval_count: NotRequired[int]
    eval_duration: NotRequired[int]
    logprobs: NotRequired[list[OllamaLogProb]]


OllamaFunction = TypedDict("OllamaFunction", {"index": int, "name": str, "arguments": dict[str, Any]})
OllamaToolCall = TypedDict("OllamaToolCall", {"id": str, "function": OllamaFunction})


class OllamaAnswerMessage(TypedDict):
    """A message of the model, or the part of it in one line."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]
    tool_calls: NotRequired[list[OllamaToolCall]]


class OllamaChatAnswer(OllamaCounts):
    """An answer to a chat, or a line of one."""

    message: OllamaAnswerMessage


class OllamaGenerateAnswer(OllamaCounts):
    """An answer to a prompt, or a line of one."""

    response: str
    thinking: NotRequired[str]


class OllamaVectorsAnswer(TypedDict):
    """The vectors of texts."""

    model: str
    embeddings: list[list[float]]
    total_duration: NotRequired[int]
    load_duration: NotRequired[int]
    prompt_eval_count: NotRequired[int]


OllamaVectorAnswer = TypedDict("OllamaVectorAnswer", {"embedding": list[float]})


class OllamaDetails(TypedDict):
    """The facts about a model's weights."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str
    context_length: NotRequired[int]
    embedding_length: NotRequired[int]


class OllamaModel(TypedDict):
    """A model, or an adapter that can be named instead."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaLoadedModel(OllamaModel):
    """A loaded model."""

    expires_at: str
    size_vram: int
    context_length: int


class OllamaListedModel(OllamaModel):
    """A served model."""

    modified_at: str
    capabilities: NotRequired[list[str]]


OllamaTags = TypedDict("OllamaTags", {"models": list[OllamaListedModel]})
OllamaProcesses = TypedDict("OllamaProcesses", {"models": list[OllamaLoadedModel]})


class OllamaShown(TypedDict):
    """The facts about a model."""

    modelfile: str
    template: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


OllamaStatus = TypedDict("OllamaStatus", {"status": str})
GENERATED = (AnswerForm(OllamaGenerateAnswer), *stream_forms(OllamaGenerateAnswer | PlainError, LINES))
CHATTED = (AnswerForm(OllamaChatAnswer), *stream_forms(OllamaChatAnswer | PlainError, LINES))
PULLED = (AnswerForm(OllamaStatus), *stream_forms(OllamaStatus, LINES))
REFUSED = (failures(PlainError, 403),)
GREETING = (AnswerForm(None, TEXT),)
ERRORS = (failures(PlainError, 400, 403, 404, 408, 413, 415, 424, 499, 500, 503, 504),)

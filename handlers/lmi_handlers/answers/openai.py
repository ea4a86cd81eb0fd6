"""The types of the answers on OpenAI's routes, with the members that vLLM's server adds."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, AnswerForm, failures, stream_forms

ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call", "error", "abort"]
CompletionFinishReason = Literal["stop", "length", "error", "abort"]

AnswerHead = TypedDict("AnswerHead", {"id": str, "created": int, "model": str, "system_fingerprint": str})
TokenCounts = TypedDict("TokenCounts", {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int})
PromptTokenDetails = TypedDict("PromptTokenDetails", {"cached_tokens": int})
CompletionTokenDetails = TypedDict("CompletionTokenDetails", {"reasoning_tokens": int})


class ChatUsage(TokenCounts):
    """The number of tokens, of prompt tokens from the prefix cache, and of reasoning tokens."""

    prompt_tokens_details: NotRequired[PromptTokenDetails]
    completion_tokens_details: NotRequired[CompletionTokenDetails]


LikelyToken = TypedDict("LikelyToken", {"token": str, "logprob": float | None, "bytes": list[int]})


class TokenLogProb(LikelyToken):
    """The generated token, and the most likely ones at its position."""

    top_logprobs: list[LikelyToken]


ChatLogProbs = TypedDict("ChatLogProbs", {"content": list[TokenLogProb], "refusal": None})
CalledFunction = TypedDict("CalledFunction", {"name": str, "arguments": str})
CalledCustomTool = TypedDict("CalledCustomTool", {"name": str, "input": str})


class AnsweredToolCall(TypedDict):
    """A call of a function, whose arguments are JSON text."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AnsweredCustomCall(TypedDict):
    """A call of a custom tool, whose input is plain text."""

    id: str
    type: Literal["custom"]
    custom: CalledCustomTool


class AnswerMessage(TypedDict):
    """The message of an answer."""

    role: Literal["assistant"]
    content: str | None
    tool_calls: NotRequired[list[AnsweredToolCall | AnsweredCustomCall]]
    function_call: NotRequired[CalledFunction | None]
    reasoning_content: NotRequired[str | None]
    reasoning: NotRequired[str | None]
    refusal: NotRequired[None]
    annotations: NotRequired[None]
    audio: NotRequired[None]


VllmLogProb = TypedDict("VllmLogProb", {"logprob": float | None, "rank": int | None, "decoded_token": str})
PromptLogProbs = list[dict[str, VllmLogProb] | None]


class PromptMembers(TypedDict):
    """vLLM's members about the prompt: null unless the client requested them."""

    prompt_logprobs: PromptLogProbs | None
    prompt_token_ids: list[int] | None


class TransferMembers(TypedDict):
    """vLLM's members for engines that share their caches."""

    kv_transfer_params: NotRequired[dict[str, Any] | None]
    ec_transfer_params: NotRequired[dict[str, Any] | None]


class AnswerMembers(AnswerHead, TransferMembers):
    """The members of a whole answer besides its choices, with vLLM's."""

    service_tier: None
    metrics: None
    usage: ChatUsage


class ChatChoice(TypedDict):
    """An answer to a chat."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogProbs | None
    finish_reason: ChatFinishReason
    stop_reason: str | int | None
    token_ids: list[int] | None
    routed_experts: None


class ChatCompletion(PromptMembers, AnswerMembers):
    """A whole answer to a chat."""

    prompt_text: str | None
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class CompletionLogProbs(TypedDict):
    """The log probabilities of a choice's tokens, in lists of the same length."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class CompletionPart(TypedDict):
    """The members of a choice, whole or in a chunk."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None
    stop_reason: str | int | None
    token_ids: list[int] | None


class CompletionChoice(CompletionPart, PromptMembers):
    """A completion of a prompt."""

    finish_reason: CompletionFinishReason
    routed_experts: None


class TextCompletion(AnswerMembers):
    """A whole answer to prompts."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class CompletionChunkChoice(CompletionPart):
    """The part of a chunk for one choice."""

    finish_reason: CompletionFinishReason | None
    prompt_token_ids: list[int] | None


class CompletionChunk(AnswerHead):
    """An event of a streamed completion; the last one is `[DONE]`."""

    object: Literal["text_completion"]
    choices: list[CompletionChunkChoice]
    usage: NotRequired[ChatUsage | None]


EmbeddingUsage = TypedDict("EmbeddingUsage", {"prompt_tokens": int, "total_tokens": int})


class ListHead(TypedDict):
    """The members of a list of vectors or scores besides these."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    usage: EmbeddingUsage


class TextEmbedding(TypedDict):
    """The vector of a text: numbers, or 32-bit floats in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(ListHead):
    """The vectors of texts."""

    data: list[TextEmbedding]


class TextPooling(TypedDict):
    """The vector of a text, as `/pooling` gives it."""

    object: Literal["pooling"]
    index: int
    data: list[float] | str


class Poolings(ListHead):
    """The vectors of texts, as `/pooling` gives them."""

    data: list[TextPooling]


TextScore = TypedDict("TextScore", {"index": int, "object": Literal["score"], "score": float})


class Scores(ListHead):
    """The scores of pairs of texts."""

    data: list[TextScore]


DocumentText = TypedDict("DocumentText", {"text": str})


class RankedDocument(TypedDict):
    """A document's place in the request, and its score."""

    index: int
    document: NotRequired[DocumentText]
    relevance_score: float


class RankedDocuments(TypedDict):
    """The documents in the order of their scores."""

    id: str
    model: str
    usage: EmbeddingUsage
    results: list[RankedDocument]


# A text's place in the request, and its score, as Text Embeddings Inference gives them.
RankedText = TypedDict("RankedText", {"index": int, "text": NotRequired[str], "score": float})


class ModelCapabilities(TypedDict):
    """The capabilities of a model for requests."""

    completion: bool
    chat: bool
    tools: bool
    insert: bool
    reasoning: bool
    logprobs: bool
    images: int
    embeddings: bool
    rerank: bool


class ModelPermission(TypedDict):
    """The permissions for a model, which are the same for every model."""

    id: str
    object: Literal["model_permission"]
    created: int
    allow_create_engine: bool
    allow_sampling: bool
    allow_logprobs: bool
    allow_search_indices: bool
    allow_view: bool
    allow_fine_tuning: bool
    organization: str
    group: None
    is_blocking: bool


class OpenAiModel(TypedDict):
    """A served model, or an adapter of one."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int | None
    permission: list[ModelPermission]
    engine: str
    example_questions: list[str]
    capabilities: ModelCapabilities | None


OpenAiModels = TypedDict("OpenAiModels", {"object": Literal["list"], "data": list[OpenAiModel]})


class TokenizedText(TypedDict):
    """The tokens of a text or a chat."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


DetokenizedText = TypedDict("DetokenizedText", {"prompt": str})
ServerVersion = TypedDict("ServerVersion", {"version": str})
ServerLoad = TypedDict("ServerLoad", {"server_load": int})
PlainError = TypedDict("PlainError", {"error": str})  # of dialects whose errors are a message alone
OpenAiErrorContent = TypedDict("OpenAiErrorContent", {"message": str, "type": str, "param": str | None, "code": str})
OpenAiError = TypedDict("OpenAiError", {"error": OpenAiErrorContent})
ChatChunk = Annotated[
    dict[str, Any],
    Field(title="ChatCompletionChunk", description="An event of a streamed chat, as in OpenAI's API."),
]
STATUSES = (400, 403, 404, 408, 413, 415, 424, 499, 500, 503, 504)
ERRORS = (failures(OpenAiError, *STATUSES),)
COMPLETION = (AnswerForm(TextCompletion), *stream_forms(CompletionChunk | OpenAiError, EVENTS))
CHAT = (AnswerForm(ChatCompletion), *stream_forms(ChatChunk | OpenAiError, EVENTS))
RankedTexts = Annotated[list[RankedText], Field(title="The texts in the order of their scores")]
NUMBERS = AnswerForm(None, "application/octet-stream")
EMBEDDINGS = (AnswerForm(Embeddings), NUMBERS)
POOLINGS = (AnswerForm(Poolings), NUMBERS)

"""The types of the answers on OpenAI's routes, with the members that vLLM's server adds."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from lmi_core.calls.answer_form import EVENTS, AnswerForm, failures, stream_forms

ChatFinishReason = Literal["stop", "length", "tool_calls", "function_call", "error", "abort"]
CompletionFinishReason = Literal["stop", "length", "error", "abort"]


class PromptTokenDetails(TypedDict):
    """The number of prompt tokens from the prefix cache."""

    cached_tokens: int


class CompletionTokenDetails(TypedDict):
    """The number of reasoning tokens among the generated ones."""

    reasoning_tokens: int


class ChatUsage(TypedDict):
    """The number of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: NotRequired[PromptTokenDetails]
    completion_tokens_details: NotRequired[CompletionTokenDetails]


class LikelyToken(TypedDict):
    """A token with its log probability."""

    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogProb(LikelyToken):
    """The generated token, and the most likely ones at its position."""

    top_logprobs: list[LikelyToken]


class ChatLogProbs(TypedDict):
    """The log probabilities of a choice's tokens."""

    content: list[TokenLogProb]
    refusal: None


class CalledFunction(TypedDict):
    """The function of a call, and its arguments as JSON text."""

    name: str
    arguments: str


class AnsweredToolCall(TypedDict):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class CalledCustomTool(TypedDict):
    """The custom tool of a call, and its input as plain text."""

    name: str
    input: str


class AnsweredCustomCall(TypedDict):
    """A call of a custom tool."""

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


class PromptTokenLogProb(TypedDict):
    """A token of the prompt in vLLM's form."""

    logprob: float | None
    rank: int | None
    decoded_token: str


PromptLogProbs = list[dict[str, PromptTokenLogProb] | None]


class PromptMembers(TypedDict):
    """vLLM's members about the prompt: null unless the client requested them."""

    prompt_logprobs: PromptLogProbs | None
    prompt_token_ids: list[int] | None


class TransferMembers(TypedDict):
    """vLLM's members for engines that share their caches."""

    kv_transfer_params: NotRequired[dict[str, Any] | None]
    ec_transfer_params: NotRequired[dict[str, Any] | None]


class AnswerMembers(TransferMembers):
    """vLLM's members of a whole answer."""

    service_tier: None
    metrics: None


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

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: ChatUsage


class CompletionLogProbs(TypedDict):
    """The log probabilities of a choice's tokens, in lists of the same length."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class CompletionChoice(PromptMembers):
    """A completion of a prompt."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None
    finish_reason: CompletionFinishReason
    stop_reason: str | int | None
    token_ids: list[int] | None
    routed_experts: None


class TextCompletion(AnswerMembers):
    """A whole answer to prompts."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: ChatUsage


class CompletionChunkChoice(TypedDict):
    """The part of a chunk for one choice."""

    index: int
    text: str
    logprobs: CompletionLogProbs | None
    finish_reason: CompletionFinishReason | None
    stop_reason: str | int | None
    prompt_token_ids: list[int] | None
    token_ids: list[int] | None


class CompletionChunk(TypedDict):
    """An event of a streamed completion; the last one is `[DONE]`."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChunkChoice]
    usage: NotRequired[ChatUsage | None]


class EmbeddingUsage(TypedDict):
    """The number of tokens of all texts."""

    prompt_tokens: int
    total_tokens: int


class TextEmbedding(TypedDict):
    """The vector of a text: numbers, or 32-bit floats in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class Embeddings(TypedDict):
    """The vectors of texts."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[TextEmbedding]
    usage: EmbeddingUsage


class TextScore(TypedDict):
    """The score of a pair of texts."""

    index: int
    object: Literal["score"]
    score: float


class Scores(TypedDict):
    """The scores of pairs of texts."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[TextScore]
    usage: EmbeddingUsage


class DocumentText(TypedDict):
    """A document of the request."""

    text: str


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


class RankedText(TypedDict):
    """A text's place in the request, and its score, as Text Embeddings Inference gives them."""

    index: int
    text: NotRequired[str]
    score: float


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


class OpenAiModels(TypedDict):
    """The served models, and their adapters."""

    object: Literal["list"]
    data: list[OpenAiModel]


class TokenizedText(TypedDict):
    """The tokens of a text or a chat."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizedText(TypedDict):
    """The text of token ids."""

    prompt: str


class ServerVersion(TypedDict):
    """The version of this server."""

    version: str


class ServerLoad(TypedDict):
    """The number of requests in progress, including queued ones."""

    server_load: int


class OpenAiErrorContent(TypedDict):
    """The details of an error: the message and the field."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAiError(TypedDict):
    """An error in OpenAI's form."""

    error: OpenAiErrorContent


ChatChunk = Annotated[
    dict[str, Any],
    Field(title="ChatCompletionChunk", description="An event of a streamed chat, as in OpenAI's API."),
]
STATUSES = (400, 403, 404, 408, 413, 415, 424, 499, 500, 503, 504)
ERRORS = (failures(OpenAiError, *STATUSES),)
COMPLETION = (AnswerForm(TextCompletion), *stream_forms(CompletionChunk | OpenAiError, EVENTS))
CHAT = (AnswerForm(ChatCompletion), *stream_forms(ChatChunk | OpenAiError, EVENTS))
RankedTexts = Annotated[list[RankedText], Field(title="The texts in the order of their scores")]
EMBEDDINGS = (AnswerForm(Embeddings), AnswerForm(None, "application/octet-stream"))

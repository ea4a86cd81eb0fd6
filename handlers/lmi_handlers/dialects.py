"""The API dialects, each imported at the first request to one of its routes."""

from collections.abc import Callable, Iterable

from lmi_core.handler import Handler
from lmi_core.hookspecs import hookimpl
from lmi_core.plugins.registry import Lazy

_TRITON_MODELS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")


def _dialect(name: str, target: str, *routes: str) -> Lazy:
    return Lazy(f"lmi_handlers.{target}", name, routes=routes)


def _triton_routes(model: str) -> Iterable[str]:
    yield from (f"POST {model}/{name}" for name in ("generate", "generate_stream", "infer"))
    yield f"GET {model}"
    yield from (f"GET {model}/{name}" for name in ("config", "ready", "stats"))


DIALECTS = (
    _dialect(
        "sagemaker",
        "lmi.sagemaker:SageMakerHandler",
        "POST /endpoints/{endpoint}/invocations",
        "POST /endpoints/{endpoint}/invocations-response-stream",
        "POST /endpoints/{endpoint}/async-invocations",
    ),
    _dialect(
        "ollama_embeddings",
        "ollama.embeddings:OllamaEmbeddingHandler",
        "POST /api/embed",
        "POST /api/embeddings",
    ),
    _dialect(
        "ollama",
        "ollama.handler:OllamaHandler",
        "POST /api/generate",
        "POST /api/chat",
        "GET /",
        "GET /api/version",
        "GET /api/tags",
        "GET /api/ps",
        "POST /api/show",
        "POST /api/pull",
        "POST /api/push",
        "POST /api/create",
        "POST /api/copy",
        "DELETE /api/delete",
    ),
    _dialect(
        "tgi",
        "tgi.handler:TgiHandler",
        "POST /",
        "POST /generate",
        "POST /generate_stream",
        "GET /info",
        "GET /health",
    ),
    _dialect(
        "happy_vllm",
        "happy_vllm.handler:HappyVllmHandler",
        "POST /v1/generate",
        "POST /v1/generate_stream",
        "POST /v1/abort_request",
        "GET /v1/info",
        "GET /liveness",
        "GET /readiness",
        "POST /v2/tokenizer",
        "POST /v2/decode",
        "POST /v1/split_text",
        "POST /v1/metadata_text",
    ),
    _dialect(
        "triton",
        "triton.handler:TritonHandler",
        "GET /v2/models/stats",
        *(route for model in _TRITON_MODELS for route in _triton_routes(model)),
        "GET /v2",
        "GET /v2/health/live",
        "GET /v2/health/ready",
        "POST /v2/repository/index",
    ),
    _dialect("openai_embeddings", "openai.embeddings:OpenAiEmbeddingsHandler", "POST /v1/embeddings"),
    _dialect(
        "rerank",
        "openai.rerank:RerankHandler",
        *(f"POST {path}" for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score")),
    ),
    _dialect(
        "openai_responses",
        "responses.handler:OpenAiResponsesHandler",
        "POST /v1/responses",
        "POST /v1/responses/input_tokens",
        "GET /v1/responses/{response_id}",
        "DELETE /v1/responses/{response_id}",
        "POST /v1/responses/{response_id}/cancel",
        "GET /v1/responses/{response_id}/input_items",
    ),
    _dialect(
        "anthropic",
        "anthropic.handler:AnthropicHandler",
        "POST /v1/messages",
        "POST /v1/messages/count_tokens",
    ),
    _dialect(
        "openai_completions",
        "openai.completions:OpenAiCompletionsHandler",
        "POST /v1/completions",
        "GET /v1/models",
        "GET /v1/models/{model}",
        "POST /tokenize",
        "POST /detokenize",
        "GET /tokenizer_info",
        "GET /load",
        "GET /version",
    ),
    _dialect(
        "openai_chat",
        "openai.chat:OpenAiChatHandler",
        "POST /v1/chat/completions",
        "POST /v1/chat/completions/batch",
    ),
    _dialect(
        "lmi",
        "lmi.handler:LmiHandler",
        "POST /invocations",
        "POST /predictions/{model}",
        "POST /predictions/{model}/{version}",
        "POST /models/{model}/invoke",
    ),
)


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler] | Lazy], None]) -> None:
    for dialect in DIALECTS:
        register(dialect)

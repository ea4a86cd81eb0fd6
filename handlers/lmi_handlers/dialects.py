"""The handlers: those of API dialects are imported at the first request to one of their routes."""

from collections.abc import Callable

from lmi_core.handler import Handler
from lmi_core.hookspecs import hookimpl
from lmi_core.plugins.registry import Lazy
from lmi_handlers.console.handler import ConsoleHandler
from lmi_handlers.lmi.adapters import AdaptersHandler
from lmi_handlers.management.handler import ManagementHandler
from lmi_handlers.metrics.handler import MetricsHandler
from lmi_handlers.openai.adapters import VllmAdaptersHandler
from lmi_handlers.pages.handler import PagesHandler
from lmi_handlers.telemetry.handler import LoggingHandler

_TRITON_MODELS = ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")


def _dialect(name: str, target: str, **paths: str) -> Lazy:
    """Return a dialect with the paths of each method, separated by spaces."""
    routes = tuple(f"{method} {path}" for method, listed in paths.items() for path in listed.split())
    return Lazy(f"lmi_handlers.{target}", name, routes=routes)


def _triton_paths(*actions: str) -> str:
    """Return the paths of these actions, for a model and for a version of one."""
    return " ".join(f"{model}{action}" for model in _TRITON_MODELS for action in actions)


# Of handlers with the same route, the first one answers.
SERVER_HANDLERS = (  # about the server and its models
    PagesHandler,
    LoggingHandler,
    ConsoleHandler,
    MetricsHandler,
    VllmAdaptersHandler,
    AdaptersHandler,  # before the management's, whose patterns match its paths too
    ManagementHandler,
)
DIALECTS = (
    _dialect(
        "sagemaker",
        "lmi.sagemaker:SageMakerHandler",
        POST="/endpoints/{endpoint}/invocations /endpoints/{endpoint}/invocations-response-stream "
        "/endpoints/{endpoint}/async-invocations",
    ),
    _dialect("ollama_embeddings", "ollama.embeddings:OllamaEmbeddingHandler", POST="/api/embed /api/embeddings"),
    _dialect(
        "ollama",
        "ollama.handler:OllamaHandler",
        POST="/api/generate /api/chat /api/show /api/pull /api/push /api/create /api/copy",
        GET="/ /api/version /api/tags /api/ps",
        DELETE="/api/delete",
    ),
    _dialect("tgi", "tgi.handler:TgiHandler", POST="/ /generate /generate_stream /embed", GET="/info /health"),
    _dialect(
        "happy_vllm",
        "happy_vllm.handler:HappyVllmHandler",
        POST="/v1/generate /v1/generate_stream /v1/abort_request /v2/tokenizer /v2/decode /v1/split_text "
        "/v1/metadata_text",
        GET="/v1/info /liveness /readiness",
    ),
    _dialect(
        "triton",
        "triton.handler:TritonHandler",
        POST=f"{_triton_paths('/generate', '/generate_stream', '/infer')} /v2/repository/index",
        # First the path that the next ones match too
        GET=f"/v2/models/stats {_triton_paths('', '/config', '/ready', '/stats')} /v2 /v2/health/live /v2/health/ready",
    ),
    _dialect("openai_embeddings", "openai.embeddings:OpenAiEmbeddingsHandler", POST="/v1/embeddings /pooling"),
    _dialect("cohere_embed", "cohere.embed:CohereEmbedHandler", POST="/v2/embed /v1/embed"),
    _dialect("rerank", "openai.rerank:RerankHandler", POST="/rerank /v1/rerank /v2/rerank /score /v1/score"),
    _dialect(
        "openai_responses",
        "responses.handler:OpenAiResponsesHandler",
        POST="/v1/responses /v1/responses/input_tokens /v1/responses/{response_id}/cancel",
        GET="/v1/responses/{response_id} /v1/responses/{response_id}/input_items",
        DELETE="/v1/responses/{response_id}",
    ),
    _dialect("anthropic", "anthropic.handler:AnthropicHandler", POST="/v1/messages /v1/messages/count_tokens"),
    _dialect(
        "openai_completions",
        "openai.completions:OpenAiCompletionsHandler",
        POST="/v1/completions /tokenize /detokenize",
        GET="/v1/models /v1/models/{model} /tokenizer_info /load /version",
    ),
    _dialect("openai_chat", "openai.chat:OpenAiChatHandler", POST="/v1/chat/completions /v1/chat/completions/batch"),
    _dialect(
        "lmi",
        "lmi.handler:LmiHandler",
        POST="/invocations /predictions/{model} /predictions/{model}/{version} /models/{model}/invoke",
    ),
)


@hookimpl
def lmi_register_handlers(register: Callable[[type[Handler] | Lazy], None]) -> None:
    for handler in (*SERVER_HANDLERS, *DIALECTS):
        register(handler)

"""Requests to every dialect over HTTP that has a whole answer and a stream."""

from typing import Any, NamedTuple

PROMPT = "What is Deep Learning?"
STREAM = {"stream": True}


class Dialect(NamedTuple):
    """How to ask for an answer of a scripted model, and the status of one that comes too late."""

    path: str
    payload: dict[str, Any]
    stream_path: str = ""  # if it is another one
    stream: dict[str, Any] = STREAM
    late: int = 504  # the status where the generation takes too long
    refused: int = 503  # and where the queue does

    @property
    def whole_request(self) -> tuple[str, dict[str, Any]]:
        return self.path, self.payload

    @property
    def stream_request(self) -> tuple[str, dict[str, Any]]:
        return self.stream_path or self.path, self.payload | self.stream


INPUTS: dict[str, Any] = {"inputs": PROMPT}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 64}
COMPLETION: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 64}
OLLAMA: dict[str, Any] = {"model": "model", "stream": False}
DIALECTS = {
    "lmi": Dialect("/invocations", INPUTS),
    "lmi chat": Dialect("/predictions/model", CHAT),
    "openai chat": Dialect("/v1/chat/completions", CHAT),
    "openai": Dialect("/v1/completions", COMPLETION),
    "responses": Dialect("/v1/responses", {"input": PROMPT}),
    "anthropic": Dialect("/v1/messages", CHAT, refused=529),
    "happy_vllm": Dialect("/v1/generate", COMPLETION, "/v1/generate_stream", {}),
    "triton": Dialect("/v2/models/model/generate", {"text_input": PROMPT}, "/v2/models/model/generate_stream", {}),
    "tgi": Dialect("/generate", INPUTS, "/generate_stream", {}, late=500, refused=429),
    "ollama": Dialect("/api/generate", OLLAMA | {"prompt": PROMPT}),
    "ollama chat": Dialect("/api/chat", OLLAMA | {"messages": CHAT["messages"]}),
    "sagemaker": Dialect("/endpoints/any/invocations", INPUTS, "/endpoints/any/invocations-response-stream", late=424),
}

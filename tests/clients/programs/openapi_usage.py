"""Typed use of the client that openapi-python-client makes, which mypy checks where that client is installed."""

from typing import Any

from httpx import Timeout
from lmi_client import Client
from lmi_client.api.lmi import post_invocations
from lmi_client.api.openai_chat import post_v1_chat_completions
from lmi_client.api.openai_completions import get_v1_models, post_v1_completions
from lmi_client.api.openai_embeddings import post_v1_embeddings
from lmi_client.api.tgi import post_generate
from lmi_client.api.triton import post_v2_models_model_generate, post_v2_models_model_infer
from lmi_client.models import (
    ChatCompletion,
    ChatRequest,
    CompletionRequest,
    Embeddings,
    EmbeddingsRequest,
    InferAnswer,
    InferInput,
    InferInputDatatype,
    InferPayload,
    LmiAnswer,
    Message,
    OpenAiError,
    OpenAiModels,
    RollingBatchPayload,
    RollingBatchPayloadExtendedParameters,
    TextCompletion,
    TgiAnswer,
    TgiParameters,
    TgiPayload,
    TritonAnswer,
    TritonPayload,
    TritonPayloadParameters,
)

TOKENS = 16


def texts(url: str, model: str, question: str) -> list[str]:
    client = Client(base_url=url, timeout=Timeout(100))
    chat = post_v1_chat_completions.sync(
        client=client,
        body=ChatRequest(messages=[Message(role="user", content=question)], max_tokens=TOKENS, temperature=0),
    )
    assert isinstance(chat, ChatCompletion)
    content: str | None = chat.choices[0].message.content
    assert content is not None
    prompted: int = chat.usage.prompt_tokens
    assert prompted > 0
    return [
        content,
        completed(client, question),
        generated(client, question),
        of_tgi(client, question),
        of_triton(client, model, question),
        inferred(client, model, question),
    ]


def completed(client: Client, prompt: str) -> str:
    answer = post_v1_completions.sync(
        client=client, body=CompletionRequest(prompt=prompt, max_tokens=TOKENS, temperature=0)
    )
    assert isinstance(answer, TextCompletion)
    text: str = answer.choices[0].text
    return text


def generated(client: Client, prompt: str) -> str:
    parameters = RollingBatchPayloadExtendedParameters(max_new_tokens=TOKENS)
    answer = post_invocations.sync(client=client, body=RollingBatchPayload(inputs=prompt, parameters=parameters))
    assert isinstance(answer, LmiAnswer)
    text: str = answer.generated_text
    return text


def of_tgi(client: Client, prompt: str) -> str:
    body = TgiPayload(inputs=prompt, parameters=TgiParameters(max_new_tokens=TOKENS))
    answer = post_generate.sync(client=client, body=body)
    assert isinstance(answer, TgiAnswer)
    text: str = answer.generated_text
    return text


def of_triton(client: Client, model: str, prompt: str) -> str:
    parameters = TritonPayloadParameters.from_dict({"max_tokens": TOKENS, "exclude_input_in_output": True})
    answer = post_v2_models_model_generate.sync(
        model, client=client, body=TritonPayload(text_input=prompt, parameters=parameters)
    )
    assert isinstance(answer, TritonAnswer)
    text = answer.text_output
    assert isinstance(text, str)
    return text


def inferred(client: Client, model: str, prompt: str) -> str:
    inputs = [
        InferInput("text_input", InferInputDatatype.BYTES, [1], data=[prompt]),
        InferInput("max_tokens", InferInputDatatype.INT32, [1], data=[TOKENS]),
        InferInput("exclude_input_in_output", InferInputDatatype.BOOL, [1], data=[True]),
    ]
    answer = post_v2_models_model_infer.sync(model, client=client, body=InferPayload(inputs=inputs))
    assert isinstance(answer, InferAnswer)
    names: list[str] = [output.name for output in answer.outputs]
    assert names == ["text_output"], names
    data = answer.outputs[0].data
    return str(data[0]) if isinstance(data, list) else ""


def names(url: str) -> list[str]:
    answer = get_v1_models.sync(client=Client(base_url=url))
    assert isinstance(answer, OpenAiModels)
    return [model.id for model in answer.data]


def failure(url: str) -> tuple[str, str | None, int]:
    answer = post_v1_chat_completions.sync_detailed(client=Client(base_url=url), body=ChatRequest(messages=[]))
    assert isinstance(answer.parsed, OpenAiError)
    error = answer.parsed.error
    return error.type_, error.param, answer.status_code.value


def ask(url: str, httpx_args: dict[str, Any]) -> None:
    client = Client(base_url=url, httpx_args=httpx_args)
    post_v1_chat_completions.sync(client=client, body=ChatRequest(messages=[]))


def dimensions(url: str, model: str) -> int:
    """Return how many numbers the vector of a text has."""
    answer = post_v1_embeddings.sync(client=Client(base_url=url), body=EmbeddingsRequest(input_="a", model=model))
    assert isinstance(answer, Embeddings)
    vector = answer.data[0].embedding
    assert isinstance(vector, list)
    assert all(isinstance(number, float) for number in vector)
    return len(vector)

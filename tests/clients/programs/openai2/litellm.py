"""LiteLLM, with every provider whose API is served here."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import litellm

from tests.clients.programs.cases import adapted, case, equal, fault, hello, raising, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ADAPTER,
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    CITY,
    FIRST_TEXT,
    FIRST_TOKENS,
    HELLO,
    MESSAGES,
    QUESTION,
    SAYING,
    THINK_MESSAGES,
    THOUGHT,
    WEATHER_ANSWER,
    WEATHER_MESSAGES,
    WEATHER_RESULT,
    WEATHER_TOOL,
)

PACKAGE = "litellm"

# Whose `api_base` ends with /v1.
OPENAI_PROVIDERS = ("openai", "custom_openai", "hosted_vllm", "litellm_proxy", "lm_studio", "llamafile")


def ask(model: str, messages: Any = MESSAGES, **options: Any) -> Any:
    options = {"api_key": "any", "max_retries": 0, "temperature": 0} | options
    return litellm.completion(model=model, messages=messages, **options)


def text(stream: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream)


def check_answer(answer: Any) -> None:
    choice, usage = answer.choices[0], answer.usage
    equal((choice.message.content, choice.finish_reason), (ANSWER, "stop"))
    equal((usage.prompt_tokens, usage.completion_tokens), (CHAT_TOKENS, ANSWER_TOKENS))


def check_tools(provider: str, base: str) -> None:
    asked: dict[str, Any] = {"api_base": base, "tools": [WEATHER_TOOL]}
    answer = ask(f"{provider}/{SAYING}", WEATHER_MESSAGES, **asked)
    (call,) = answer.choices[0].message.tool_calls
    equal((call.function.name, json.loads(call.function.arguments)), ("weather", CITY))
    result = {"role": "tool", "tool_call_id": call.id, "content": WEATHER_RESULT}
    messages = [*WEATHER_MESSAGES, answer.choices[0].message, result]
    equal(ask(f"{provider}/{SAYING}", messages, **asked).choices[0].message.content, WEATHER_ANSWER)


@case(
    "OpenAI chats",
    "answers with `openai/`, `custom_openai/`, `hosted_vllm/`, `litellm_proxy/`, `lm_studio/` and `llamafile/`",
)
def chat() -> None:
    for provider in OPENAI_PROVIDERS:
        check_answer(ask(f"{provider}/{HELLO}", api_base=f"{hello()}/v1"))


@case("OpenAI chats", "streams with each of them")
def chat_stream() -> None:
    for provider in OPENAI_PROVIDERS:
        equal(text(ask(f"{provider}/{HELLO}", api_base=f"{hello()}/v1", stream=True)), ANSWER)


@case("OpenAI chats", "counts of streams")
def stream_usage() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(ask(f"hosted_vllm/{HELLO}", api_base=f"{hello()}/v1", **options))
    together: Any = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    check_answer(together)


@case("OpenAI chats", "asyncio")
async def chat_asyncio() -> None:
    options: Any = {"api_base": f"{hello()}/v1", "api_key": "any", "temperature": 0}
    check_answer(await litellm.acompletion(model=f"openai/{HELLO}", messages=MESSAGES, **options))
    stream: Any = await litellm.acompletion(model=f"openai/{HELLO}", messages=MESSAGES, stream=True, **options)
    equal("".join([chunk.choices[0].delta.content or "" async for chunk in stream]), ANSWER)


@case("OpenAI chats", "log probabilities")
def log_probabilities() -> None:
    answer = ask(f"openai/{HELLO}", api_base=f"{hello()}/v1", logprobs=True, top_logprobs=2)
    equal([token["token"] for token in answer.choices[0].logprobs["content"]][:4], FIRST_TOKENS)


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """Let imports of the package fail, as if it were not installed."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == package}
    sys.modules[package] = None  # type: ignore[assignment]  # how the import system is told so
    try:
        yield
    finally:
        del sys.modules[package]
        sys.modules.update(kept)


@fault(
    "OpenAI chats",
    "Calls with `tools` import the package `mcp`, which is not among LiteLLM's requirements.",
    "Install `mcp` beside it.",
)
def tools_without_mcp() -> None:
    with hidden("mcp"), raising(ImportError, "mcp"):
        check_tools("openai", f"{saying()}/v1")
    check_tools("openai", f"{saying()}/v1")


@case("OpenAI chats", "tool calls and their results")
def tools() -> None:
    for provider in ("openai", "hosted_vllm"):
        check_tools(provider, f"{saying()}/v1")


@case("OpenAI chats", "reasoning")
def reasoning() -> None:
    for provider in ("openai", "hosted_vllm"):
        message = ask(f"{provider}/{SAYING}", THINK_MESSAGES, api_base=f"{saying()}/v1").choices[0].message
        equal((message.content, message.reasoning_content), (ANSWER, THOUGHT))


@case("OpenAI chats", "structured outputs")
def structured() -> None:
    for provider in ("openai", "hosted_vllm"):
        answer = ask(f"{provider}/{HELLO}", api_base=f"{hello()}/v1", response_format=Paint, max_tokens=200)
        equal(Paint.model_validate_json(answer.choices[0].message.content), PAINT)


@case("OpenAI chats", "errors")
def errors() -> None:
    with raising(litellm.ContextWindowExceededError, "maximum context length is 2048 tokens"):
        ask(f"hosted_vllm/{HELLO}", [{"role": "user", "content": "word " * 3000}], api_base=f"{hello()}/v1")


@case("OpenAI chats", "answers and streams with `huggingface/`")
def huggingface() -> None:
    check_answer(ask(f"huggingface/{HELLO}", api_base=hello()))
    equal(text(ask(f"huggingface/{HELLO}", api_base=hello(), stream=True)), ANSWER)
    check_tools("huggingface", saying())


@case("OpenAI completions", "answers and streams with `text-completion-openai/`")
def completions() -> None:
    options = {"api_base": f"{hello()}/v1", "max_tokens": 64}
    answer = ask(f"text-completion-openai/{HELLO}", **options)
    equal((answer.choices[0].message.content, answer.choices[0].finish_reason), (ANSWER, "stop"))
    equal(text(ask(f"text-completion-openai/{HELLO}", stream=True, **options)), ANSWER)


@case("OpenAI completions", "`litellm.text_completion`")
def text_completions() -> None:
    options: Any = {"api_base": f"{hello()}/v1", "api_key": "any", "temperature": 0, "max_tokens": 64}
    for provider in ("text-completion-openai", "openai"):
        answer: Any = litellm.text_completion(model=f"{provider}/{HELLO}", prompt=QUESTION, **options)
        equal(answer.choices[0].text, ANSWER)


@case("OpenAI completions", "adapters")
def adapter() -> None:
    options: Any = {"api_base": f"{hello()}/v1", "api_key": "any", "temperature": 0, "max_tokens": 8}
    answer: Any = litellm.text_completion(model=f"text-completion-openai/{ADAPTER}", prompt=QUESTION, **options)
    equal(answer.choices[0].text, adapted())


@case("SageMaker", "answers and streams with `sagemaker/`")
def sagemaker() -> None:
    endpoint = f"{hello()}/endpoints/{HELLO}/invocations"
    answer = ask(f"sagemaker/{HELLO}", sagemaker_base_url=endpoint, max_tokens=64)
    equal(answer.choices[0].message.content, ANSWER)
    stream = ask(f"sagemaker/{HELLO}", sagemaker_base_url=f"{endpoint}-response-stream", max_tokens=64, stream=True)
    equal(text(stream), ANSWER)


@case("SageMaker", "chats, streamed chats and tool calls with `sagemaker_chat/`")
def sagemaker_chat() -> None:
    endpoint = f"{hello()}/endpoints/{HELLO}/invocations"
    answer = ask(f"sagemaker_chat/{HELLO}", sagemaker_base_url=endpoint)
    equal((answer.choices[0].message.content, answer.usage.completion_tokens), (ANSWER, ANSWER_TOKENS))
    stream = ask(f"sagemaker_chat/{HELLO}", sagemaker_base_url=f"{endpoint}-response-stream", stream=True)
    equal(text(stream), ANSWER)
    asked: dict[str, Any] = {
        "sagemaker_base_url": f"{saying()}/endpoints/{SAYING}/invocations",
        "tools": [WEATHER_TOOL],
    }
    (call,) = ask(f"sagemaker_chat/{SAYING}", WEATHER_MESSAGES, **asked).choices[0].message.tool_calls
    equal(json.loads(call.function.arguments), CITY)


def check_triton(route: str, **options: Any) -> None:
    options |= {"model": f"triton/{HELLO}", "messages": MESSAGES, "api_key": "any"}
    options["api_base"] = f"{hello()}/v2/models/{HELLO}/{route}"
    for tokens, expected in ((64, ANSWER), (4, FIRST_TEXT)):
        answer: Any = litellm.completion(max_tokens=tokens, **options)
        equal(answer.choices[0].message.content, expected)


@case("Triton", "answers with `triton/`, given `exclude_input_in_output=True`")
def triton() -> None:
    check_triton("generate", exclude_input_in_output=True)


@case("Triton's /infer", 'answers with `triton/`, given `exclude_input_in_output="true"`')
def triton_infer() -> None:
    check_triton("infer", exclude_input_in_output="true")  # LiteLLM says of a bool that it is an INT32


@case("Triton", "streams with `triton/`")
def triton_stream() -> None:
    base = f"{hello()}/v2/models/{HELLO}/generate"
    stream = litellm.completion(model=f"triton/{HELLO}", messages=MESSAGES, max_tokens=64, api_base=base, stream=True)
    equal(text(stream), ANSWER)


@case("OpenAI Responses", "answers and streams with `openai/` and `hosted_vllm/`")
def responses() -> None:
    for provider in ("openai", "hosted_vllm"):
        asked: Any = {"model": f"{provider}/{HELLO}", "input": QUESTION, "temperature": 0}
        asked |= {"api_base": f"{hello()}/v1", "api_key": "any"}
        answer: Any = litellm.responses(**asked)
        equal(answer.output[0].content[0].text, ANSWER)
        events: Any = litellm.responses(stream=True, **asked)
        equal("".join(event.delta for event in events if event.type == "response.output_text.delta"), ANSWER)


@case("OpenAI embeddings", "vectors with `openai/` and `hosted_vllm/`")
def embeddings() -> None:
    for provider in ("openai", "hosted_vllm"):
        asked: Any = {"api_base": f"{hello()}/v1", "api_key": "any", "input": [QUESTION, ANSWER]}
        first, second = litellm.embedding(model=f"{provider}/{HELLO}", **asked).data
        equal((len(first["embedding"]), first == second), (len(second["embedding"]), False))


@case("Anthropic Messages", "answers, streams and tool calls with `anthropic/`")
def anthropic() -> None:
    answer = ask(f"anthropic/{HELLO}", api_base=hello(), max_tokens=64)
    check_answer(answer)
    equal(text(ask(f"anthropic/{HELLO}", api_base=hello(), max_tokens=64, stream=True)), ANSWER)
    check_tools("anthropic", saying())


@case("Ollama", "answers, streams and tool calls with `ollama_chat/`")
def ollama_chat() -> None:
    check_answer(ask(f"ollama_chat/{HELLO}", api_base=hello()))
    equal(text(ask(f"ollama_chat/{HELLO}", api_base=hello(), stream=True)), ANSWER)
    check_tools("ollama_chat", saying())


@fault(
    "Ollama",
    "`ollama/` writes a chat as one text with headings of its own (`### User:`), which goes into the chat template.",
    "Use `ollama_chat/`.",
)
def ollama() -> None:
    prompt = f"### User:\n{QUESTION}\n\n"
    generate = {"model": HELLO, "prompt": prompt, "options": {"temperature": 0}, "stream": False}
    expected = httpx.post(f"{hello()}/api/generate", json=generate).json()["response"]
    equal(ask(f"ollama/{HELLO}", api_base=hello()).choices[0].message.content, expected)
    equal(text(ask(f"ollama/{HELLO}", api_base=hello(), stream=True)), expected)
    equal(expected == ANSWER, False)

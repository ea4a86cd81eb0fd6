"""All dialects at once on one real model: each answer is that of the same prompt through LMI's schema."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import pytest_asyncio
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from tests.conftest import Answer
from tests.lmi_process import client_of

HELLO = Path(__file__).parents[2] / "examples" / "hello"
QUESTIONS = [pair["question"] for pair in json.loads((HELLO / "questions.json").read_text(encoding="utf-8"))[::15]]
TOKENS = 24
STREAM = {"stream": True}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass(frozen=True)
class Dialect:
    """How to ask for TOKENS greedy tokens, and where the answer has its text."""

    path: str
    payload: Callable[[str], dict[str, Any]]
    text: Callable[[Answer], str]
    chat: bool = False


def events(answer: Answer) -> list[Any]:
    lines = [line.removeprefix(b"data:").strip() for line in answer.body.split(b"\n\n") if line]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def named_events(answer: Answer) -> list[Any]:
    return [json.loads(event.split(b"data: ")[1]) for event in answer.body.split(b"\n\n") if event]


def lmi(prompt: str) -> dict[str, Any]:
    return {"inputs": prompt, "parameters": {"max_new_tokens": TOKENS}}


def triton(prompt: str) -> dict[str, Any]:
    return {"text_input": prompt, "max_tokens": TOKENS, "exclude_input_in_output": True}


def kserve(prompt: str) -> dict[str, Any]:
    inputs = [
        {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [prompt]},
        {"name": "max_tokens", "datatype": "INT32", "shape": [1], "data": [TOKENS]},
        {"name": "exclude_input_in_output", "datatype": "BOOL", "shape": [1], "data": [True]},
    ]
    return {"inputs": inputs}


def vllm(prompt: str) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}


def chat(prompt: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS, "temperature": 0}


OLLAMA = {"model": "hello", "options": {"num_predict": TOKENS, "temperature": 0}, "stream": False}


def ollama_generate(prompt: str) -> dict[str, Any]:
    return OLLAMA | {"prompt": prompt}


def ollama_chat(prompt: str) -> dict[str, Any]:
    return OLLAMA | {"messages": [{"role": "user", "content": prompt}]}


def responses(prompt: str) -> dict[str, Any]:
    return {"input": prompt, "max_output_tokens": TOKENS, "temperature": 0}


def response_text(response: Any) -> str:
    return str(response["output"][0]["content"][0]["text"])


def message(answer: Answer) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def deltas(chunks: list[Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


DIALECTS = {
    "lmi": Dialect("/predictions/hello", lmi, lambda a: str(a.json()["generated_text"])),
    "lmi stream": Dialect(
        "/invocations", lambda prompt: lmi(prompt) | STREAM, lambda a: str(a.json_lines()[-1]["generated_text"])
    ),
    "lmi chat": Dialect("/invocations", chat, message, chat=True),
    "lmi chat stream": Dialect(
        "/invocations", lambda prompt: chat(prompt) | STREAM, lambda a: deltas(a.json_lines()), chat=True
    ),
    "openai chat": Dialect("/v1/chat/completions", chat, message, chat=True),
    "openai chat stream": Dialect(
        "/v1/chat/completions", lambda prompt: chat(prompt) | STREAM, lambda a: deltas(events(a)), chat=True
    ),
    "openai responses": Dialect("/v1/responses", responses, lambda a: response_text(a.json()), chat=True),
    "openai responses stream": Dialect(
        "/v1/responses",
        lambda prompt: responses(prompt) | STREAM,
        lambda a: "".join(each["delta"] for each in named_events(a) if each["type"].endswith("text.delta")),
        chat=True,
    ),
    "openai": Dialect("/v1/completions", vllm, lambda a: str(a.json()["choices"][0]["text"])),
    "openai stream": Dialect(
        "/v1/completions",
        lambda prompt: vllm(prompt) | STREAM,
        lambda a: "".join(choice["text"] for event in events(a) for choice in event["choices"]),
    ),
    "anthropic": Dialect("/v1/messages", chat, lambda a: str(a.json()["content"][0]["text"]), chat=True),
    "anthropic stream": Dialect(
        "/v1/messages",
        lambda prompt: chat(prompt) | STREAM,
        lambda a: "".join(event.get("delta", {}).get("text", "") for event in named_events(a)),
        chat=True,
    ),
    "happy_vllm": Dialect("/v1/generate", vllm, lambda a: str(a.json()["responses"][0])),
    "happy_vllm stream": Dialect("/v1/generate_stream", vllm, lambda a: str(a.json_lines()[-1]["responses"][0])),
    "triton": Dialect("/v2/models/hello/generate", triton, lambda a: str(a.json()["text_output"])),
    "triton stream": Dialect(
        "/v2/models/hello/generate_stream", triton, lambda a: "".join(event["text_output"] for event in events(a))
    ),
    "kserve": Dialect("/v2/models/hello/infer", kserve, lambda a: str(a.json()["outputs"][0]["data"][0])),
    "tgi": Dialect("/generate", lmi, lambda a: str(a.json()["generated_text"])),
    "tgi stream": Dialect("/generate_stream", lmi, lambda a: str(events(a)[-1]["generated_text"])),
    "ollama": Dialect("/api/generate", ollama_generate, lambda a: str(a.json()["response"]), chat=True),
    "ollama raw stream": Dialect(
        "/api/generate",
        lambda prompt: ollama_generate(prompt) | STREAM | {"raw": True},
        lambda a: "".join(line["response"] for line in a.json_lines()),
    ),
    "ollama chat": Dialect("/api/chat", ollama_chat, lambda a: str(a.json()["message"]["content"]), chat=True),
    "ollama chat stream": Dialect(
        "/api/chat",
        lambda prompt: ollama_chat(prompt) | STREAM,
        lambda a: "".join(line["message"]["content"] for line in a.json_lines()),
        chat=True,
    ),
    "sagemaker": Dialect("/endpoints/any/invocations", lmi, lambda a: str(a.json()["generated_text"])),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with client_of(HELLO) as client:
        yield client


async def post(client: aiohttp.ClientSession, path: str, payload: object) -> Answer:
    async with client.post(path, json=payload) as response:
        answer = Answer(response.status, response.headers, await response.read())
    assert answer.status == 200, answer.body
    return answer


async def ask(client: aiohttp.ClientSession, dialect: Dialect, question: str) -> str:
    return dialect.text(await post(client, dialect.path, dialect.payload(question)))


def rendered(question: str) -> str:
    tokenizer = cast(PreTrainedTokenizerBase, AutoTokenizer.from_pretrained(HELLO))
    messages = chat(question)["messages"]
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


async def test_every_dialect_gives_the_same_text(client: aiohttp.ClientSession) -> None:
    prompts = {(question, False): question for question in QUESTIONS}
    prompts |= {(question, True): rendered(question) for question in QUESTIONS}
    expected = {asked: await ask(client, DIALECTS["lmi"], prompt) for asked, prompt in prompts.items()}
    assert len(set(expected.values())) == len(QUESTIONS)
    asked = [(name, question) for question in QUESTIONS for name in DIALECTS]
    answers = await asyncio.gather(*(ask(client, DIALECTS[name], question) for name, question in asked))
    wrong = [
        (name, question, text)
        for (name, question), text in zip(asked, answers, strict=True)
        if text != expected[question, DIALECTS[name].chat]
    ]
    assert wrong == []


ENDLESS = {"max_tokens": 1800, "ignore_eos": True}
STORY = "Tell me a story."
STREAMS: list[tuple[str, dict[str, Any]]] = [
    (
        "/invocations",
        {"inputs": STORY, "parameters": {"max_new_tokens": 1800, "ignore_eos_token": True, "details": True}},
    ),
    ("/invocations", chat(STORY) | ENDLESS),
    ("/v1/chat/completions", chat(STORY) | ENDLESS),
    ("/v1/responses", {"input": STORY, **ENDLESS}),
    ("/v1/completions", {"prompt": STORY, **ENDLESS}),
    ("/v1/messages", chat(STORY) | ENDLESS),
    ("/v1/generate_stream", {"prompt": STORY, **ENDLESS}),
    ("/v2/models/hello/generate_stream", {"text_input": STORY, "return_finish_reason": True, **ENDLESS}),
    (
        "/generate_stream",
        {"inputs": "Count.", "parameters": {"max_new_tokens": 1800, "details": True}},
    ),  # to one hundred
]


@pytest.mark.parametrize(("path", "payload"), STREAMS)
async def test_abort_over_another_connection(client: aiohttp.ClientSession, path: str, payload: dict[str, Any]) -> None:
    stream = {} if path == "/v1/generate_stream" else STREAM
    request_id = f"story of {path}"
    async with client.post(path, json=payload | stream, headers={"x-request-id": request_id}) as response:
        assert response.status == 200, await response.text()
        await response.content.readline()
        await post(client, "/v1/abort_request", {"request_id": request_id})
        rest = await response.read()
    assert (b'"cancelled"' if path == "/v1/responses" else b"abort") in rest
    assert b'"length"' not in rest
    async with client.post("/v1/abort_request", json={"request_id": request_id}) as gone:
        assert gone.status == 404
    assert await ask(client, DIALECTS["lmi"], "What is Deep Learning?") == "Deep Learning is a really cool field."

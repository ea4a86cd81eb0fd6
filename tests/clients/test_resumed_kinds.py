"""Every kind of answer while the worker is killed or stopped: calls, vectors, stored responses, beams and gRPC."""

import asyncio
import json
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
import pytest_asyncio
from tritonclient.grpc.aio import InferenceServerClient

from tests.clients.test_every_dialect import HELLO, QUESTIONS, STORY, STREAM
from tests.clients.test_openai_torch import TEMPLATE
from tests.clients.test_resumption import engine_of
from tests.clients.triton_grpc import is_final, tensor
from tests.conftest import RunningServer, running_server
from tests.soak.answers import stable

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]  # much work on a busy machine

PROPERTIES = (
    f"option.rolling_batch=torch\noption.model_id={HELLO}\noption.chat_template=tools.jinja\n"
    "option.heartbeat_timeout=5\noption.max_rolling_batch_size=64\n"
)
SEEDED = {"temperature": 1.2, "seed": 11}
LONG = {"ignore_eos": True, **SEEDED}
COLOURS = {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 60, "maxItems": 90}
ARGUMENTS = {
    "type": "object",
    "properties": {"colours": COLOURS},
    "required": ["colours"],
    "additionalProperties": False,
}
PAINT = {"name": "paint", "parameters": ARGUMENTS}
MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": STORY}]}
CALLS = {
    **MESSAGES,
    **SEEDED,
    "max_tokens": 900,
    "tools": [{"type": "function", "function": PAINT}],
    "tool_choice": "required",
}
CLAUDE_CALLS = CALLS | {"tools": [{"name": "paint", "input_schema": ARGUMENTS}], "tool_choice": {"type": "any"}}
RESPONSE = {"input": STORY, "max_output_tokens": 350, **LONG}
RESPONSE_CALLS = {
    "input": STORY,
    **SEEDED,
    "max_output_tokens": 900,
    "tools": [{"type": "function", **PAINT}],
    "tool_choice": "required",
}
RESPONSE_INPUT = RESPONSE_CALLS | {"tools": [{"type": "custom", "name": "paint"}], "max_output_tokens": 350}
OLLAMA = {"model": "model", "options": {"num_predict": 900, **SEEDED}, "format": ARGUMENTS}
BEAMS = {"inputs": STORY, "parameters": {"num_beams": 3, "max_new_tokens": 300, "ignore_eos_token": True}}
SEVERAL = {"prompt": STORY, "n": 2, "best_of": 3, "max_tokens": 350, **LONG}
TEXTS = [f"{number}: {question} " * 12 for number in range(8) for question in QUESTIONS]


def one(answers: list[Any]) -> object:
    (answer,) = answers
    return stable(answer)


def chat(chunks: list[Any]) -> object:
    """Return the text, the calls and the ends of each choice, and the number of calls' ids."""
    texts, reasons, ids = defaultdict[Any, str](str), [], set()
    for choice in [choice for chunk in chunks for choice in chunk["choices"]]:
        delta = choice["delta"]
        texts[choice["index"]] += delta.get("content") or ""
        reasons += [(choice["index"], choice["finish_reason"])] if choice["finish_reason"] else []
        for call in delta.get("tool_calls", ()):
            ids |= {call["id"]} if "id" in call else set()
            for key, text in call["function"].items():
                texts[choice["index"], call["index"], key] += text
    return texts, sorted(reasons), len(ids)


def completions(chunks: list[Any]) -> object:
    """Return the text and the ends of each choice."""
    texts, reasons = defaultdict[Any, str](str), []
    for choice in [choice for chunk in chunks for choice in chunk["choices"]]:
        texts[choice["index"]] += choice["text"]
        reasons += [(choice["index"], choice["finish_reason"])] if choice["finish_reason"] else []
    return texts, sorted(reasons)


def blocks(events: list[Any]) -> object:
    """Return the text of each block, and all other events, but for how many tokens had come when a message began."""
    numbers = [event.pop("sequence_number") for event in events if "sequence_number" in event]
    assert numbers == list(range(len(numbers)))
    texts = defaultdict[Any, str](str)
    for event in events:
        if event["type"] == "message_start":
            event["message"]["usage"].pop("output_tokens", None)
        delta = event.get("delta", {})
        text = delta if isinstance(delta, str) else delta.get("text", "") + delta.get("partial_json", "")
        texts[event.get("output_index", event.get("index"))] += text
    return texts, [stable(event) for event in events if not event["type"].endswith("delta")]


def lines(answers: list[Any]) -> object:
    return "".join(each["message"]["content"] for each in answers), [stable(each) for each in answers if each["done"]]


@dataclass(frozen=True)
class Kind:
    """A request, and how to read its answer, which consists of several lines or events if it is a stream."""

    path: str
    payload: dict[str, Any]
    read: Callable[[list[Any]], object] = one
    begun: asyncio.Event = field(default_factory=asyncio.Event)  # a stream

    @property
    def streams(self) -> bool:
        return "stream" in self.payload


def all_kinds() -> dict[str, Kind]:
    return {
        "calls": Kind("/v1/chat/completions", CALLS),
        "calls, streamed": Kind("/v1/chat/completions", CALLS | STREAM, chat),
        "calls of two choices, streamed": Kind("/v1/chat/completions", CALLS | STREAM | {"n": 2}, chat),
        "calls of LMI": Kind("/invocations", CALLS),
        "calls of Anthropic": Kind("/v1/messages", CLAUDE_CALLS),
        "calls of Anthropic, streamed": Kind("/v1/messages", CLAUDE_CALLS | STREAM, blocks),
        "response": Kind("/v1/responses", RESPONSE),
        "response, streamed": Kind("/v1/responses", RESPONSE | STREAM, blocks),
        "response with calls": Kind("/v1/responses", RESPONSE_CALLS),
        "response with calls, streamed": Kind("/v1/responses", RESPONSE_CALLS | STREAM, blocks),
        "response with a custom call, streamed": Kind("/v1/responses", RESPONSE_INPUT | STREAM, blocks),
        "vectors": Kind("/v1/embeddings", {"input": TEXTS}),
        "vectors of Ollama": Kind("/api/embed", {"model": "model", "input": TEXTS}),
        "beams": Kind("/invocations", BEAMS),
        "several": Kind("/v1/completions", SEVERAL),
        "several, streamed": Kind("/v1/completions", SEVERAL | {"best_of": 2} | STREAM, completions),
        "object of Ollama, streamed": Kind("/api/chat", MESSAGES | OLLAMA | STREAM, lines),
    }


async def ask(server: RunningServer, kind: Kind) -> list[Any]:
    """Return the answer's lines or events."""
    found = []
    async with server.client.post(kind.path, json=kind.payload) as response:
        assert response.status == 200, await response.text()
        if not kind.streams:
            return [await response.json()]
        async for line in response.content:
            data = line.removeprefix(b"data:").strip()
            found += [json.loads(data)] if data.startswith(b"{") else []
            if len(found) > 20:
                kind.begun.set()
    return found


async def grpc_stream(server: RunningServer, begun: asyncio.Event) -> object:
    """Return the text and the number of final responses of each request of a stream."""
    texts, finals = defaultdict[str, str](str), defaultdict[str, int](int)
    values = [("text_input", STORY, "BYTES"), ("max_tokens", 350, "INT32"), ("stream", True, "BOOL")]
    values += [("random_seed", 5, "UINT64"), ("temperature", 1.3, "FP32"), ("ignore_eos", True, "BOOL")]

    async def requests() -> AsyncIterator[dict[str, Any]]:
        for request_id in ("first", "second"):
            inputs = [tensor(name, [value], datatype) for name, value, datatype in values]
            yield {"model_name": "model", "request_id": request_id, "inputs": inputs}

    async with InferenceServerClient(server.grpc_address) as client:
        async for result, error in client.stream_infer(requests()):
            assert error is None, error
            response = result.get_response()
            finals[response.id] += is_final(result)
            if (output := result.as_numpy("text_output")) is not None:
                texts[response.id] += output[0].decode()
            if len(texts["second"]) > 60:
                begun.set()
    assert finals == {"first": 1, "second": 1}
    return texts


def vectors(answer: Any) -> Any:
    return numpy.array([each["embedding"] for each in answer["data"]] if "data" in answer else answer["embeddings"])


async def go_on(server: RunningServer, response: Any) -> object:
    """Return the next response of the conversation."""
    calls = [item["call_id"] for item in response["output"] if item["type"].endswith("_call")]
    results = [{"type": "function_call_output", "call_id": call, "output": "done"} for call in calls]
    payload = {"input": results or "Go on.", "previous_response_id": response["id"], "max_output_tokens": 30, **SEEDED}
    answer = await server.post("/v1/responses", payload)
    assert answer.status == 200, answer.body
    return [stable(answer.json()[member]) for member in ("output", "usage")]


async def is_right(server: RunningServer, kind: Kind, answers: list[Any], expected: list[Any]) -> bool:
    """Return whether an answer is the expected one; a response must be stored and go on as that does."""
    if "embed" in kind.path:
        return numpy.allclose(vectors(answers[0]), vectors(expected[0]), rtol=0, atol=1e-4)
    if kind.path == "/v1/responses":
        first, second = (each[-1].get("response", each[-1]) for each in (answers, expected))
        if (await server.get(f"/v1/responses/{first['id']}")).json() != first:
            return False
        if await go_on(server, first) != await go_on(server, second):
            return False
    return kind.read(answers) == kind.read(expected)


@dataclass(frozen=True)
class Undisturbed:
    """The answers of a server without faults."""

    server: RunningServer
    answers: dict[str, list[Any]]
    grpc_stream: object


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Undisturbed]:
    directory = tmp_path_factory.mktemp("models") / "model"
    directory.mkdir()
    (directory / "serving.properties").write_text(PROPERTIES)
    (directory / "tools.jinja").write_text(TEMPLATE)
    async with running_server(directory, grpc=True) as server:
        kinds = all_kinds()
        answers = await asyncio.gather(*(ask(server, kind) for kind in kinds.values()))
        stream = await grpc_stream(server, asyncio.Event())
        yield Undisturbed(server, dict(zip(kinds, answers, strict=True)), stream)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_no_client_sees_it(undisturbed: Undisturbed, number: signal.Signals) -> None:
    server, expected = undisturbed.server, undisturbed.answers
    engine, kinds, begun = engine_of(server), all_kinds(), asyncio.Event()
    asked = {name: asyncio.create_task(ask(server, kind)) for name, kind in kinds.items()}
    asked_stream = asyncio.create_task(grpc_stream(server, begun))
    for event in [begun, *(kind.begun for kind in kinds.values() if kind.streams)]:
        await event.wait()
    worker = engine.replicas.first.process_id
    assert worker is not None
    os.kill(worker, number)
    assert [name for name, task in asked.items() if task.done()] == []
    assert not asked_stream.done()
    answers = dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))
    wrong = [name for name, kind in kinds.items() if not await is_right(server, kind, answers[name], expected[name])]
    assert wrong == []
    assert await asked_stream == undisturbed.grpc_stream
    assert engine.replicas.first.process_id not in (None, worker)
    assert engine.in_flight == 0

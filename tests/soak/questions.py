"""The requests of a soak: every dialect, with greedy and seeded parameters, each of which has one right answer."""

import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from tests.clients.test_every_dialect import DIALECTS, QUESTIONS, STORY

MODEL = "hello"
BODY_NAMES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")  # where a body has the model
LENGTH_KEYS = ("max_new_tokens", "max_tokens", "max_output_tokens", "num_predict")
LENGTHS = (1, 8, 24, 60, 150)
LONG_PROMPT = "One, two, three, what comes then? " * 90  # about a thousand tokens
ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
STEADY, PASSING = "steady", "passing"  # adapters: one that stays, and one that is loaded and removed all the time


@dataclass(frozen=True)
class Question:
    """A request with one right answer. `dialect` names the row of the table that can read its streams."""

    name: str
    path: str
    payload: Any
    dialect: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def streams(self) -> bool:
        return self.dialect is not None and "stream" in self.dialect


def of_model(path: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload with the model's name where a path expects it, as there may be other models."""
    return {"model": MODEL} | payload if path in BODY_NAMES else payload


def with_length(payload: Any, count: int) -> Any:
    """Return the payload with another maximum number of tokens."""
    if isinstance(payload, list):
        return [with_length(each, count) for each in payload]
    if not isinstance(payload, dict):
        return payload
    if payload.get("name") in LENGTH_KEYS:  # a tensor
        return payload | {"data": [count]}
    return {key: count if key in LENGTH_KEYS else with_length(value, count) for key, value in payload.items()}


def with_seed(payload: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return the payload as one that samples with a seed, in the words of its dialect."""
    sampling = {"temperature": 1.3, "top_p": 0.95}
    if isinstance(payload.get("inputs"), list):  # tensors
        tensors = [tensor("random_seed", "UINT64", seed), tensor("temperature", "FP32", 1.3)]
        return payload | {"inputs": payload["inputs"] + tensors}
    if "text_input" in payload:
        return payload | sampling | {"random_seed": seed}
    if "parameters" in payload:
        return payload | {"parameters": payload["parameters"] | sampling | {"do_sample": True, "seed": seed}}
    if "options" in payload:
        return payload | {"options": payload["options"] | sampling | {"seed": seed}}
    return payload | sampling | {"seed": seed}


def tensor(name: str, datatype: str, value: object) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [1], "data": [value]}


def of_dialects(numbers: random.Random, per_dialect: int) -> Iterator[Question]:
    """Yield questions to each dialect, every other one of which samples with a seed."""
    for name, dialect in DIALECTS.items():
        for place in range(per_dialect):
            prompt = numbers.choice([STORY, LONG_PROMPT, *QUESTIONS])
            payload = with_length(deepcopy(dialect.payload(prompt)), numbers.choice(LENGTHS))
            seeded = place % 2 == 1
            if seeded:
                payload = with_seed(payload, numbers.randrange(2**31))
            headers = {ADAPTER_HEADER: STEADY} if numbers.random() < 0.15 else {}
            kind = "seeded" if seeded else "greedy"
            yield Question(f"{name}, {kind} {place}", dialect.path, payload, name, headers)


SEEDED = {"temperature": 1.2, "seed": 11}
CHAT = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 60}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"enum": ["yes", "no"]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
SPECIAL = [
    Question("n=3", "/v1/completions", {"prompt": STORY, "max_tokens": 40, "n": 3, **SEEDED}),
    Question("several prompts", "/v1/completions", {"prompt": QUESTIONS[:4], "max_tokens": 30, "temperature": 0}),
    Question(
        "echo, log probs",
        "/v1/completions",
        {"prompt": "Hi", "max_tokens": 9, "echo": True, "logprobs": 2, "temperature": 0},
    ),
    Question("chat n=2", "/v1/chat/completions", CHAT | SEEDED | {"n": 2}),
    Question("regex", "/v1/completions", {"prompt": "a", "max_tokens": 40, "guided_regex": "([a-f]{3} ){9}", **SEEDED}),
    Question(
        "schema",
        "/v1/chat/completions",
        CHAT
        | SEEDED
        | {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}},
    ),
    Question("beams", "/invocations", {"inputs": STORY, "parameters": {"num_beams": 3, "max_new_tokens": 40}}),
    Question(
        "details, stops",
        "/invocations",
        {
            "inputs": STORY,
            "parameters": {
                "max_new_tokens": 120,
                "details": True,
                "decoder_input_details": True,
                "repetition_penalty": 1.2,
                "stop_sequences": ["the end", " was"],
            },
        },
    ),
    Question(
        "tgi best_of",
        "/generate",
        {"inputs": STORY, "parameters": {"max_new_tokens": 20, "details": True, "do_sample": True, "seed": 3}},
    ),
]

BAD = [
    Question("no JSON", "/invocations", b'{"inputs": '),
    Question("wrong type", "/v1/completions", {"prompt": STORY, "max_tokens": "many"}),
    Question("out of range", "/v1/chat/completions", CHAT | {"temperature": -1}),
    Question("too long", "/generate", {"inputs": "word " * 3000}),
    Question("unknown route", "/v1/nothing", {}),
    Question("invalid regex", "/v1/completions", {"prompt": "a", "guided_regex": "(("}),
    Question("huge integer", "/v1/completions", b'{"model": "hello", "prompt": "a", "seed": ' + b"9" * 5000 + b"}"),
    Question("no messages", "/v1/messages", {"max_tokens": 5}),
    Question("no input", "/v1/responses", {"max_output_tokens": 5}),
    Question("wrong tensor", "/v2/models/hello/infer", {"inputs": [tensor("text_input", "INT32", 1)]}),
    Question("no prompt", "/v1/generate", {"max_tokens": 3}),
    Question("wrong option", "/api/generate", {"model": "hello", "prompt": "a", "options": {"seed": "x"}}),
]


def adapter_question(adapter: str) -> Question:
    return Question(
        f"adapter {adapter}",
        "/invocations",
        {"inputs": STORY, "adapters": adapter, "parameters": {"max_new_tokens": 20}},
    )


def questions(seed: int, per_dialect: int) -> list[Question]:
    """Return all questions that have an answer with status 200 as long as their adapter is there."""
    return [*of_dialects(random.Random(seed), per_dialect), *SPECIAL, adapter_question(STEADY)]

"""Answers in the harmony format, with calls that are broken and markers that are quoted, cut after every token."""

import json
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pytest

from lmi_core.parsing.reasoning.harmony import TEXTS
from lmi_plugins.backends.scripted import Script
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.openai.chats import chat, events, serve_with

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "clock")]
OPENING = ["<|start|>", "assistant"]
# Each is a message: what it is, its header and body in tokens, and its end.
SAID: list[tuple[str, list[str], list[str], str]] = [
    (
        "reasoning",
        ["<|channel|>", "analysis", "<|message|>"],
        ["A", " call", " ends", " with", " <", "|call", "|>", "."],
        "<|end|>",
    ),
    ("content", [*OPENING, "<|channel|>", "commentary", "<|message|>"], ["I", " look", "."], "<|end|>"),
    (
        "weather",
        [
            *OPENING,
            "<|channel|>",
            "commentary",
            " to",
            "=functions",
            ".weather",
            " ",
            "<|constrain|>",
            "json",
            "<|message|>",
        ],
        ['{"', "city", '":', ' "', "Par", "is", " <", "|call", "|>"],
        "<|call|>",
    ),
    (
        "clock",
        [*OPENING, " to", "=functions", ".clock", "<|channel|>", "commentary", "<|message|>"],
        ["{", "}"],
        "<|call|>",
    ),
    ("reasoning", [*OPENING, "<|channel|>", "analysis", "<|message|>"], ["Done", "."], "<|end|>"),
    (
        "content",
        [*OPENING, "<|channel|>", "final", "<|message|>"],
        ["It", " is <", "|", "end|> hot", "."],
        "<|return|>",
    ),
]
TOKENS = [token for _, header, body, end in SAID for token in (*header, *body, end)]


class Said(NamedTuple):
    """The parts of an answer: reasoning, content, and each call's name and arguments."""

    reasoning: str
    content: str
    calls: list[tuple[str, str]]


def expected(length: int) -> Said:
    """Return the parts of the first `length` tokens."""
    found: dict[str, list[str]] = {"reasoning": [], "content": []}
    for kind, header, body, _ in SAID:
        if length >= len(header):
            found.setdefault(kind, []).append("".join(body[: length - len(header)]))
        length = max(length - len(header) - len(body) - 1, 0)
    reasoning, content = ("\n".join(filter(None, found.pop(kind))) for kind in ("reasoning", "content"))
    return Said(reasoning, content, [(name, text) for name, (text,) in found.items()])


def streamed(deltas: list[dict[str, Any]]) -> Said:
    calls: list[tuple[str, str]] = []
    for index, parts in groupby(
        [call for delta in deltas for call in delta.get("tool_calls", ())], itemgetter("index")
    ):
        assert index == len(calls)
        functions = [part["function"] for part in parts]
        calls.append((functions[0]["name"], "".join(function["arguments"] for function in functions)))
    reasoning, content = ("".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content"))
    return Said(reasoning.rstrip(), content, calls)


def whole(message: dict[str, Any]) -> Said:
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
    return Said((message["reasoning"] or "").rstrip(), message["content"] or "", calls)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


async def check(server: RunningServer, length: int, reasons: bool) -> None:
    server.scripted.enqueue(*[Script(tokens=TOKENS)] * 2)
    asked: dict[str, Any] = {"tools": TOOLS, "max_tokens": length}
    deltas = [event["choices"][0]["delta"] for event in events(await chat(server, stream=True, **asked))]
    reasoning, content, calls = expected(length)
    reasoning = reasoning if reasons else ""
    assert streamed(deltas) == Said(reasoning, content, calls), length
    (choice,) = (await chat(server, **asked)).json()["choices"]
    found = whole(choice["message"])
    cut = choice["finish_reason"] == "length" and bool(calls) and not is_json(calls[-1][1])
    if not cut or "It" in content:  # the broken call was ended by the model
        assert found == Said(reasoning, content, calls), length
    else:  # a call that is cut is left out, or is content
        assert found._replace(content="") == Said(reasoning, "", calls[:-1]), length
        assert content in found.content


@pytest.mark.parametrize("reasons", [True, False])
async def test_every_length(serve: Serve, model_dir: ModelDirectory, reasons: bool) -> None:
    properties = "option.tool_call_parser=openai\n" + "option.reasoning_parser=openai_gptoss\n" * reasons
    server = await serve_with(serve, model_dir, properties)
    for length in range(1, len(TOKENS) + 1):
        await check(server, length, reasons)
    assert expected(len(TOKENS)) == Said(
        "A call ends with <|call|>.\nDone.",
        "I look.\nIt is <|end|> hot.",
        [("weather", '{"city": "Paris <|call|>'), ("clock", "{}")],
    )


@pytest.mark.parametrize("fields", [{"tools": TOOLS}, {}])
async def test_any_marker_anywhere(serve: Serve, model_dir: ModelDirectory, fields: dict[str, Any]) -> None:
    """No mark of a token reaches the client, which JSON could not hold."""
    properties = "option.tool_call_parser=openai\noption.reasoning_parser=openai_gptoss\n"
    server = await serve_with(serve, model_dir, properties)
    (_, thought, *_), (_, call, *_) = SAID[0], SAID[3]
    for said in ["Hi", " there"], [*thought, "a", "b", "<|end|>", *call, "{", "}", "<|call|>"]:
        for marker in TEXTS:
            for place in range(len(said) + 1):
                tokens = [*said[:place], marker, *said[place:]]
                server.scripted.enqueue(Script(tokens=tokens))
                answer = await chat(server, **fields)
                assert answer.status == 200, (tokens, answer.body)

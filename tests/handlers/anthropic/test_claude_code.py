"""Requests in the form in which Claude Code sends them: a tool use, and the turn with its result."""

from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.anthropic.asking import COUNT, PATH, SHOWN, ask, read_events, rendered

MODEL = SCRIPTED + "option.tool_call_parser=hermes\noption.reasoning_parser=qwen3\n" + SHOWN
MARKED = {"cache_control": {"type": "ephemeral"}}
HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-api-key": "any",
    "x-app": "cli",
}
SCHEMA = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": False}
SHELL = {"name": "Bash", "description": "Run a command.", "input_schema": SCHEMA | {"properties": {"command": {}}}}
FETCH = {"name": "WebFetch", "description": "Get a page.", "input_schema": SCHEMA, "defer_loading": True}
QUESTION = {
    "role": "user",
    "content": [
        {"type": "text", "text": "<system-reminder>It is Monday.</system-reminder>"},
        {"type": "text", "text": "Go"},
    ],
}
REQUEST: dict[str, Any] = {
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: version=2"},
        {"type": "text", "text": "You are an agent.", **MARKED},
    ],
    "tools": [SHELL, FETCH],
    "metadata": {"user_id": '{"device_id":"d","session_id":"s"}'},
    "max_tokens": 32000,
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}
BUDGET = {"type": "enabled", "budget_tokens": 31999}
SYSTEM = {"role": "system", "content": "Agents: none."}
CALL = '<think>A shell.</think>I look.<tool_call>{"name": "Bash", "arguments": {"command": "ls"}}</tool_call>'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": MODEL}))


def answered(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks of a stream in the form in which the next request repeats them."""
    *_, thinking, signature, text, use = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    begun = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert [block["type"] for block in begun] == ["thinking", "text", "tool_use"]
    assert use["partial_json"] == '{"command": "ls"}'
    return [
        {"type": "thinking", "thinking": thinking["thinking"], "signature": signature["signature"]},
        {"type": "text", "text": text["text"]},
        {"type": "tool_use", "id": begun[2]["id"], "name": "Bash", "input": {"command": "ls"}},
    ]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("a.txt", "a.txt"),
        ([{"type": "text", "text": "a.txt"}], "a.txt"),
        ([{"type": "tool_reference", "tool_name": "WebFetch"}], "WebFetch"),  # of its search for tools
    ],
)
async def test_turn_with_a_tool(server: RunningServer, result: object, text: str) -> None:
    server.scripted.enqueue(Script(tokens=[CALL]))
    answer = await ask(server, PATH + "?beta=true", HEADERS, messages=[QUESTION, SYSTEM], stream=True, **REQUEST)
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "context_management"
    uses = answered(read_events(answer.body))
    blocks = [
        {"type": "tool_result", "tool_use_id": uses[2]["id"], "content": result, "is_error": False, **MARKED},
        {"type": "text", "text": "Go on.", **MARKED},
    ]
    turns = [QUESTION, SYSTEM, {"role": "assistant", "content": uses}, {"role": "user", "content": blocks}]
    request = REQUEST | {"messages": turns, "thinking": BUDGET}
    answer = await ask(server, PATH + "?beta=true", HEADERS, stream=True, **request)
    assert read_events(answer.body)[-1] == {"type": "message_stop"}
    _system, _question, _agents, said, given, _more = messages = rendered(server)
    assert [each["role"] for each in messages] == ["system", "user", "system", "assistant", "tool", "user"]
    assert (said["reasoning_content"], said["content"]) == ("A shell.", "I look.")
    assert (given["content"], given["tool_call_id"]) == (text, uses[2]["id"])
    assert [tool["function"]["name"] for tool in rendered(server, "tools")] == ["Bash", "WebFetch"]
    assert parameters(server).max_new_tokens is None or parameters(server).max_new_tokens <= 2048
    counted = await ask(server, COUNT + "?beta=true", HEADERS, messages=turns, tools=REQUEST["tools"])
    assert counted.json()["input_tokens"] > 0

"""Searches for tools that the client runs, such as Codex's: the call, its result, and the tools that it finds."""

from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.responses.asking import AS_JSON, PATH, WEATHER, ask, events, kinds, respond, serve_with

SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Search for tools.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
FOUND = [{"type": "namespace", "name": "mcp__weather", "tools": [{**WEATHER, "defer_loading": True}]}]
QUESTION = {"type": "message", "role": "user", "content": "Weather?"}
CALL = '<tool_call>{"name": "tool_search", "arguments": {"query": "weather"}}</tool_call>'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    server = await serve_with(serve, model_dir, "option.tool_call_parser=hermes\n")
    server.scripted.tokenizer.template = AS_JSON
    return server


def result(call: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "tool_search_output", "call_id": call["call_id"], "execution": "client", "tools": tools}


async def test_search_and_call(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL), Script(CALL))
    answer = await ask(server, [QUESTION], tools=[SEARCH], stream=True)
    assert "X-Lmi-Ignored-Parameters" not in answer.headers
    assert server.scripted.history[-1].prompt.endswith(" tool: tool_search")
    found = events(answer)
    assert kinds(found)[2:-1] == ["output_item.added", "output_item.done"]
    added, done, completed = found[-3:]
    call = done["item"]
    members = {"type": "tool_search_call", "status": "completed", "execution": "client"}
    assert call == members | {"arguments": {"query": "weather"}, "id": call["id"], "call_id": call["call_id"]}
    assert added["item"] == call | {"status": "in_progress", "arguments": {}}
    assert completed["response"]["output"] == [call]
    assert completed["response"]["tools"] == [SEARCH]
    (whole,) = (await respond(server, [QUESTION], tools=[SEARCH]))["output"]
    assert whole == call | {"id": whole["id"], "call_id": whole["call_id"]}

    server.scripted.enqueue(Script('<tool_call>{"name": "mcp__weather__weather", "arguments": {}}</tool_call>'))
    items = [QUESTION, call, result(call, FOUND)]
    second = await respond(server, items, tools=[SEARCH])
    prompt = server.scripted.history[-1].prompt
    assert prompt.endswith(" tool: mcp__weather__weather tool: tool_search")
    assert "You can now call these tools: mcp__weather__weather" in prompt
    assert (
        second["output"][0].items() >= {"type": "function_call", "namespace": "mcp__weather", "name": "weather"}.items()
    )
    stored = completed["response"]["id"]
    third = await respond(server, [result(call, FOUND)], previous_response_id=stored, tools=[SEARCH])
    assert server.scripted.history[-1].prompt == prompt
    listed = (await server.get(f"{PATH}/{third['id']}/input_items?order=asc")).json()["data"]
    assert listed[1] == call
    assert listed[2].items() >= {"type": "tool_search_output", "call_id": call["call_id"]}.items()
    assert listed[2]["tools"][0]["tools"][0]["name"] == "weather"


async def test_nothing_found(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL))
    first = await respond(server, tools=[SEARCH])
    await respond(server, [result(first["output"][0], [])], previous_response_id=first["id"], tools=[SEARCH])
    assert "No tools were found." in server.scripted.history[-1].prompt
    assert server.scripted.history[-1].prompt.endswith(" tool: tool_search")


async def test_a_call_that_is_cut(server: RunningServer) -> None:
    server.scripted.enqueue(
        Script('<tool_call>{"name": "tool_search", "arguments": {"query": "a b c d e f"}}</tool_call>')
    )
    response = await respond(server, tools=[SEARCH], max_output_tokens=6)
    (call,) = response["output"]
    assert (call["type"], call["status"]) == ("tool_search_call", "incomplete")
    assert call["arguments"].startswith('{"query"')
    await respond(server, [result(call, FOUND)], previous_response_id=response["id"])
    assert server.scripted.history[-1].prompt.endswith(" tool: mcp__weather__weather")


@pytest.mark.parametrize(
    ("written", "given"),
    [
        ('{"limit": 123456789012345678901234567890}', '{"limit": 123456789012345678901234567890}'),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", '{"a": ' + "[" * 300 + "]" * 300 + "}"),
        ("[1]", '"[1]"'),
    ],
)
async def test_arguments_as_the_model_writes_them(server: RunningServer, written: str, given: str) -> None:
    script = Script(f'<tool_call>{{"name": "tool_search", "arguments": {written}}}</tool_call>')
    server.scripted.enqueue(script, script)
    assert f'"arguments":{given}'.encode() in (await ask(server, [QUESTION], tools=[SEARCH])).body
    assert f'"arguments":{given}'.encode() in (await ask(server, [QUESTION], tools=[SEARCH], stream=True)).body


async def test_invalid_schema(server: RunningServer) -> None:
    error = (await ask(server, tools=[{**SEARCH, "parameters": {"type": "text"}}])).json()["error"]
    assert error["param"] == "tools.0.parameters", error


async def test_a_hosted_search_is_ignored(server: RunningServer) -> None:
    answer = await ask(server, tools=[{"type": "tool_search"}, {**WEATHER, "defer_loading": True}])
    assert "tools.tool_search" in answer.headers["X-Lmi-Ignored-Parameters"]
    assert server.scripted.history[-1].prompt.endswith(" tool: weather")


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"call_id": "a", "execution": "server", "arguments": {}}, "input.0.execution"),
        ({"call_id": None, "arguments": {}}, "input.0.call_id"),
        ({"call_id": "a"}, "input.0.arguments"),
        ({"call_id": "a", "arguments": orjson.loads("[" * 300 + "]" * 300)}, "input.0.arguments"),
    ],
)
async def test_invalid_call(server: RunningServer, item: dict[str, Any], param: str) -> None:
    error = (await ask(server, [{"type": "tool_search_call", **item}])).json()["error"]
    assert error["param"] == param, error


async def test_result_without_a_call(server: RunningServer) -> None:
    error = (await ask(server, [result({"call_id": "call_1"}, FOUND)])).json()["error"]
    assert error["message"].startswith("`input.0.call_id` must match an earlier call")

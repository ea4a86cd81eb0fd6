"""Requests in the form in which Codex sends them: calls of functions and of MCP tools, and their results."""

from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.responses.asking import AS_JSON, ask, events, respond, serve_with

SHELL = {
    "type": "function",
    "name": "exec_command",
    "description": "Run a command.",
    "strict": False,
    "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}, "additionalProperties": False},
}
CITY = {"type": "function", "name": "city", "parameters": {"type": "object", "properties": {}}}
NAMESPACE = {"type": "namespace", "name": "mcp__weather", "description": "The weather.", "tools": [CITY]}
TOOLS = [
    SHELL,
    {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
    },
    NAMESPACE,
    {"type": "web_search", "external_web_access": True},
]
REQUEST: dict[str, Any] = {
    "instructions": "You are an agent.",
    "tools": TOOLS,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "text": {"verbosity": "medium"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a2",
    "client_metadata": {"session_id": "01a2"},
}
QUESTION: list[dict[str, Any]] = [
    {"type": "message", "id": f"msg_{role}", "role": role, "content": [{"type": "input_text", "text": "Go"}]}
    for role in ("developer", "user")
]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    server = await serve_with(serve, model_dir, "option.tool_call_parser=hermes\noption.reasoning_parser=qwen3\n")
    server.scripted.tokenizer.template = AS_JSON
    return server


def call(name: str) -> Script:
    return Script(f'<think>Hm.</think>I look.<tool_call>{{"name": "{name}", "arguments": {{"a": 1}}}}</tool_call>')


@pytest.mark.parametrize(
    ("said", "function"),
    [
        ("exec_command", {"name": "exec_command"}),
        ("mcp__weather__city", {"name": "city", "namespace": "mcp__weather"}),
    ],
)
async def test_turn_with_a_call(server: RunningServer, said: str, function: dict[str, str]) -> None:
    server.scripted.enqueue(call(said))
    answer = await ask(server, QUESTION, stream=True, **REQUEST)
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "tools.web_search"
    found = events(answer)
    items = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert {name: items[2].get(name) for name in function} == function
    assert ("namespace" in items[2]) == ("namespace" in function)
    (done,) = (event for event in found if event["type"] == "response.function_call_arguments.done")
    assert (done["name"], done["arguments"]) == (function["name"], '{"a": 1}')
    assert found[-1]["response"]["tools"][2]["tools"][0]["name"] == "city"
    result = {"type": "function_call_output", "call_id": items[2]["call_id"], "output": "a.txt"}
    assert events(await ask(server, [*QUESTION, *items, result], stream=True, **REQUEST))
    written = server.scripted.history[-1].prompt
    messages = orjson.loads(written[: written.index(" tool: ")])
    assert written.endswith(" tool: exec_command tool: apply_patch tool: mcp__weather__city")
    assert [each["role"] for each in messages] == ["system", "system", "user", "assistant", "tool"]
    assert (messages[3]["content"], messages[3]["reasoning"]) == ("I look.", "Hm.")
    assert messages[3]["tool_calls"][0]["function"]["name"] == said
    assert messages[4]["content"] == "a.txt"


async def test_stored_call_in_a_namespace(server: RunningServer) -> None:
    server.scripted.enqueue(call("mcp__weather__city"))
    first = await respond(server, "Go", tools=[NAMESPACE])
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "Rome"}
    second = await respond(server, [result], previous_response_id=first["id"])
    assert '"name":"mcp__weather__city"' in server.scripted.history[-1].prompt.replace(" ", "")
    listed = (await server.get(f"/v1/responses/{second['id']}/input_items")).json()["data"]
    assert [item["namespace"] for item in listed if item["type"] == "function_call"] == ["mcp__weather"]


async def test_tools_as_an_item(server: RunningServer) -> None:
    """Codex offers the tools so to those models that it knows."""
    tools = [{**NAMESPACE, "name": "functions", "tools": [SHELL, TOOLS[1]]}, TOOLS[3]]
    added = {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": tools}
    server.scripted.enqueue(call("functions__exec_command"))
    answer = await ask(server, [added, *QUESTION], tool_choice="auto")
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "tools.web_search"
    response = answer.json()
    called = response["output"][-1]
    assert (called["type"], called["namespace"], called["name"]) == ("function_call", "functions", "exec_command")
    result = {"type": "function_call_output", "call_id": called["call_id"], "output": "a.txt"}
    server.scripted.enqueue(
        Script('<tool_call>{"name": "functions__apply_patch", "arguments": {"input": "x"}}</tool_call>')
    )
    second = await respond(server, [result], previous_response_id=response["id"])
    assert server.scripted.history[-1].prompt.endswith(" tool: functions__exec_command tool: functions__apply_patch")
    called = second["output"][-1]
    assert (called["type"], called["namespace"], called["input"]) == ("custom_tool_call", "functions", "x")
    listed = (await server.get(f"/v1/responses/{second['id']}/input_items?order=asc")).json()["data"]
    assert [tool["type"] for tool in listed[0]["tools"]] == ["namespace"]
    assert [tool["name"] for tool in listed[0]["tools"][0]["tools"]] == ["exec_command", "apply_patch"]


async def test_hosted_tools_beside_tools_as_an_item(server: RunningServer) -> None:
    """One of the client's own in either place, or in an earlier turn, is enough."""
    hosted = TOOLS[3:]
    own = {"type": "additional_tools", "role": "developer", "tools": [SHELL]}
    search = {**own, "tools": hosted}
    first = await respond(server, [own, *QUESTION], tools=hosted)
    assert first["tools"] == []
    await respond(server, [search, *QUESTION], tools=[SHELL])
    await respond(server, QUESTION, tools=hosted, previous_response_id=first["id"])
    assert server.scripted.history[-1].prompt.endswith(" tool: exec_command")
    error = (await ask(server, [*QUESTION, search])).json()["error"]
    assert (error["param"], error["message"]) == (
        "input.2.tools",
        "`input.2.tools` must have one of the type function or custom: this server has no built-in tools. "
        "Given: [{'type': 'web_search'}]",
    )


async def test_tools_offered_in_each_turn(server: RunningServer) -> None:
    """Each is in the prompt once, as last defined; stored items keep their own definitions."""
    server.scripted.tokenizer.template = "{% for tool in tools %} {{ tool.function.description }}{% endfor %}"
    added = {"type": "additional_tools", "role": "developer"}
    first = await respond(server, [{**added, "tools": [SHELL, NAMESPACE]}, *QUESTION])
    newer = [SHELL | {"description": "New."}, NAMESPACE | {"tools": [CITY | {"description": "Also."}]}]
    second = await respond(server, [{**added, "tools": newer}, *QUESTION], previous_response_id=first["id"])
    assert server.scripted.history[-1].prompt == " New. Also."
    newest = [SHELL | {"description": "Newest."}]
    await respond(server, QUESTION, previous_response_id=second["id"], tools=newest)
    assert server.scripted.history[-1].prompt == " Newest. Also."
    listed = (await server.get(f"/v1/responses/{second['id']}/input_items?order=asc")).json()["data"]
    shells = [item["tools"][0]["description"] for item in listed if item["type"] == "additional_tools"]
    assert shells == ["Run a command.", "New."]


async def test_reasoning_that_only_another_server_can_read(server: RunningServer) -> None:
    hidden = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
    readable = hidden | {"summary": [{"type": "summary_text", "text": "Hm."}]}
    for items, ignored in (([hidden, said], ["input.reasoning.encrypted_content"]), ([readable, said], [])):
        answer = await ask(server, [*QUESTION, *items, QUESTION[1]], **REQUEST | {"store": True})
        assert answer.status == 200, answer.body
        found = answer.headers["X-Lmi-Ignored-Parameters"].split(", ")
        assert found == ["tools.web_search", *ignored]
        written = server.scripted.history[-1].prompt
        messages = orjson.loads(written[: written.index(" tool: ")])
        assert [each["role"] for each in messages] == ["system", "system", "user", "assistant", "user"]
        assert messages[3].get("reasoning") == (None if ignored else "Hm.")
        listed = (await server.get(f"/v1/responses/{answer.json()['id']}/input_items?order=asc")).json()["data"]
        assert listed[2]["encrypted_content"] == "gAAAA"
        again = await ask(server, "Go on", previous_response_id=answer.json()["id"])
        assert again.status == 200, again.body

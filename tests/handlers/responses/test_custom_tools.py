"""Custom tools in responses, such as Codex's `apply_patch`: calls, results, choices and stored conversations."""

import json
from itertools import groupby
from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.responses.asking import PATH, WEATHER, ask, events, respond, serve_with, stream

PATCH = '*** Begin Patch\n+say "hi"\n*** End Patch'
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /x+/"}
CUSTOM = {"type": "custom", "name": "apply_patch", "description": "Edit files.", "format": GRAMMAR}
NAMESPACE = {"type": "namespace", "name": "files", "description": "Files.", "tools": [CUSTOM, WEATHER]}
ARGUMENTS = json.dumps({"input": PATCH})
SHOWN = "{{ messages | tojson }}\n{{ tools | tojson }}"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    server = await serve_with(serve, model_dir, "option.tool_call_parser=hermes\n")
    server.scripted.tokenizer.template = SHOWN
    return server


def call(name: str) -> Script:
    return Script(f'I edit.<tool_call>{{"name": "{name}", "arguments": {ARGUMENTS}}}</tool_call>')


def shown(server: RunningServer) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages and tools of the latest prompt."""
    messages, tools = server.scripted.history[-1].prompt.split("\n")
    return orjson.loads(messages), orjson.loads(tools)


@pytest.mark.parametrize(
    ("tools", "name", "members"),
    [
        ([CUSTOM], "apply_patch", {"name": "apply_patch"}),
        ([NAMESPACE], "files__apply_patch", {"namespace": "files", "name": "apply_patch"}),
    ],
)
async def test_call_and_its_result(
    server: RunningServer, tools: list[dict[str, Any]], name: str, members: dict[str, str]
) -> None:
    server.scripted.enqueue(call(name), call(name))
    answer = await ask(server, tools=tools, stream=True)
    assert "X-Lmi-Ignored-Parameters" not in answer.headers
    function = shown(server)[1][0]["function"]
    assert (function["name"], "start: /x+/" in function["description"]) == (name, True)
    found = events(answer)
    runs = [(kind, list(run)) for kind, run in groupby(found, lambda event: event["type"].removeprefix("response."))]
    *_, (_, [added]), (_, deltas), (_, [done]), (_, [item_done]), (_, [completed]) = runs
    assert [kind for kind, _ in runs][-5:] == [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert len(deltas) > 1
    assert "".join(event["delta"] for event in deltas) == done["input"] == PATCH
    item = item_done["item"]
    expected = {"type": "custom_tool_call", "status": "completed", **members, "input": PATCH}
    assert item == expected | {"id": item["id"], "call_id": item["call_id"]}
    assert item["id"].startswith("ctc_")
    assert added["item"] == item | {"status": "in_progress", "input": ""}
    assert completed["response"]["output"][-1] == item
    assert completed["response"]["tools"][0].get("tools", completed["response"]["tools"])[0] == CUSTOM
    whole = (await respond(server, tools=tools))["output"][-1]
    assert {**whole, "id": item["id"], "call_id": item["call_id"]} == item

    result = {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Done!"}
    stored = await respond(server, [result], previous_response_id=completed["response"]["id"], tools=tools)
    messages = shown(server)[0]
    await respond(
        server, [{"role": "user", "content": "What is it?"}, *completed["response"]["output"], result], tools=tools
    )
    assert shown(server)[0] == messages
    assert messages[1]["tool_calls"][0]["function"] == {"name": name, "arguments": {"input": PATCH}}
    assert (messages[2]["role"], messages[2]["content"]) == ("tool", "Done!")
    listed = (await server.get(f"{PATH}/{stored['id']}/input_items")).json()["data"]
    assert [each for each in listed if each["type"] == "custom_tool_call"] == [item]
    assert listed[0]["type"] == "custom_tool_call_output"


NAMED = {"type": "custom", "name": "apply_patch"}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (NAMED, ARGUMENTS),
        ("required", f'[{{"name": "apply_patch", "parameters": {ARGUMENTS}}}]'),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [NAMED]},
            f'[{{"name": "apply_patch", "parameters": {ARGUMENTS}}}]',
        ),
    ],
)
async def test_choice(server: RunningServer, choice: object, said: str) -> None:
    server.scripted.enqueue(Script(said))
    response = await respond(server, tools=[WEATHER, CUSTOM], tool_choice=choice)
    assert [(item["type"], item["input"]) for item in response["output"]] == [("custom_tool_call", PATCH)]
    assert response["tool_choice"] == choice
    assert parameters(server).guided_json is not None


async def test_truncated_call(server: RunningServer) -> None:
    server.scripted.enqueue(call("apply_patch"))
    *_, incomplete = await stream(server, tools=[CUSTOM], max_output_tokens=7)
    item = incomplete["response"]["output"][-1]
    assert (item["status"], item["input"]) == ("incomplete", "*** Begin")


@pytest.mark.parametrize("said", ['{"patch": "x"}', '{"more": "x", "input": "y"}'])
async def test_reasoning_after_a_call(serve: Serve, model_dir: ModelDirectory, said: str) -> None:
    properties = "option.tool_call_parser=openai\noption.reasoning_parser=gpt-oss\n"
    server = await serve_with(serve, model_dir, properties)
    server.scripted.tokenizer.template = SHOWN
    harmony = (
        f"<|channel|>commentary to=functions.apply_patch <|message|>{said} <|call|> <|start|>assistant "
        "<|channel|>analysis<|message|> Hm. <|end|> <|start|>assistant<|channel|>final<|message|> Done."
    )
    server.scripted.enqueue(Script(harmony), Script(harmony))
    whole = await respond(server, tools=[CUSTOM])
    *_, completed = await stream(server, tools=[CUSTOM])
    assert completed["type"] == "response.completed"
    for response in (whole, completed["response"]):
        call, reasoning, message = response["output"]
        assert (call["type"], call["input"]) == ("custom_tool_call", "y" if "input" in said else said)
        assert (reasoning["type"], reasoning["content"][0]["text"].strip()) == ("reasoning", "Hm.")
        assert message["content"][0]["text"].strip() == "Done."


@pytest.mark.parametrize(
    ("tool", "param", "message"),
    [
        ({"type": "custom"}, "tools.0.name", "is required"),
        (
            CUSTOM | {"format": {"type": "grammar", "syntax": "lark"}},
            "tools.0.format",
            "must have the `syntax` and the `definition` of the grammar",
        ),
        (
            CUSTOM | {"format": GRAMMAR | {"syntax": "ebnf"}},
            "tools.0.format.syntax",
            "must be 'lark' or 'regex'. Given: 'ebnf'",
        ),
        (
            NAMESPACE | {"tools": [{"type": "web_search"}]},
            "tools.0.tools.0",
            "must be of the type function or custom. Given: {'type': 'web_search'}",
        ),
    ],
)
async def test_invalid_tool(server: RunningServer, tool: dict[str, Any], param: str, message: str) -> None:
    error = (await ask(server, tools=[tool])).json()["error"]
    assert (error["param"], error["message"].startswith(f"`{param}` {message}")) == (param, True), error

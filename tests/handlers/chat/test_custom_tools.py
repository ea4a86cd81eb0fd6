"""Custom tools in chats: the function that the model gets, and the plain text that its calls become."""

import json
from typing import Any

import pytest

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.chat.said_calls import PARIS
from tests.handlers.openai.chats import MESSAGES, chat, events

PATCH = '*** Begin Patch\n+say "hi"\n*** End Patch'
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /x+/"}}
CUSTOM = {"type": "custom", "custom": {"name": "patch", "description": "Edit files.", "format": GRAMMAR}}
WEATHER = {"type": "function", "function": {"name": "weather"}}
TOOLS = [CUSTOM, WEATHER]
NAMED = {"type": "custom", "custom": {"name": "patch"}}
SCHEMA = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
SHOWN = "{{ messages | tojson }}\n{{ tools | tojson }}"
ARGUMENTS = json.dumps({"input": PATCH})
CALL = f'Let me see.\n<tool_call>\n{{"name": "patch", "arguments": {ARGUMENTS}}}\n</tool_call>'
SECOND = f'\n<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>'


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.tool_call_parser=hermes\n"}))
    server.scripted.tokenizer.template = SHOWN
    return server


def without_ids(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert all(call.pop("id") for call in calls)
    return calls


async def ask(server: RunningServer, said: str, **fields: Any) -> tuple[str | None, list[dict[str, Any]], str]:
    """Content, calls and finish reason, which must be the same whole and streamed."""
    server.scripted.enqueue(Script(said), Script(said))
    (choice,) = (await chat(server, tools=TOOLS, **fields)).json()["choices"]
    message = choice["message"]
    whole = message["content"], without_ids(message.get("tool_calls", [])), choice["finish_reason"]
    chunks = events(await chat(server, tools=TOOLS, stream=True, **fields))
    calls: list[dict[str, Any]] = []
    for part in [part for chunk in chunks for part in chunk["choices"][0]["delta"].get("tool_calls", [])]:
        if part.pop("index") == len(calls):
            calls.append(part)
        else:
            ((kind, texts),) = part.items()
            for member, text in texts.items():
                calls[-1][kind][member] += text
    assert (without_ids(calls), chunks[-1]["choices"][0]["finish_reason"]) == whole[1:]
    return whole


def custom(text: str) -> dict[str, Any]:
    return {"type": "custom", "custom": {"name": "patch", "input": text}}


async def test_calls(server: RunningServer) -> None:
    function = {"type": "function", "function": {"name": "weather", "arguments": PARIS}}
    assert await ask(server, CALL + SECOND) == ("Let me see.", [custom(PATCH), function], "tool_calls")
    _, shown = server.scripted.history[-1].prompt.split("\n")
    patch, weather = json.loads(shown)
    assert patch["function"] == {
        "name": "patch",
        "description": "Edit files.\n\nPass the whole text as the argument `input`.\n\n"
        "The input must match this lark grammar:\nstart: /x+/",
        "parameters": SCHEMA,
    }
    assert (patch["type"], weather) == ("function", WEATHER)


async def test_input_is_streamed_as_it_comes(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL))
    chunks = events(await chat(server, tools=TOOLS, stream=True))
    first, *deltas = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert (first["type"], first["custom"]) == ("custom", {"name": "patch", "input": ""})
    assert [delta["custom"]["input"] for delta in deltas[:3]] == ["***", " Begin", " Patch\n+say"]


@pytest.mark.parametrize(
    ("choice", "said", "reason"),
    [
        (NAMED, ARGUMENTS, "stop"),
        ("patch", ARGUMENTS, "stop"),
        ("required", f'[{{"name": "patch", "parameters": {ARGUMENTS}}}]', "tool_calls"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}},
            f'[{{"name": "patch", "parameters": {ARGUMENTS}}}]',
            "tool_calls",
        ),
    ],
)
async def test_choice(server: RunningServer, choice: object, said: str, reason: str) -> None:
    assert await ask(server, said, tool_choice=choice) == (None, [custom(PATCH)], reason)
    parameters = server.scripted.history[-1].parameters
    assert isinstance(parameters, ExtendedParameters)
    guide = parameters.guided_json
    assert guide is not None
    assert SCHEMA in (guide, guide.get("items", {}).get("anyOf", [{}])[0].get("properties", {}).get("parameters"))


async def test_truncated_call(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL))
    (choice,) = (await chat(server, tools=TOOLS, max_tokens=9)).json()["choices"]
    assert (choice["message"]["content"], "tool_calls" in choice["message"]) == (CALL[: CALL.index(" Begin")], False)


@pytest.mark.parametrize(("arguments", "text"), [(ARGUMENTS, PATCH), ('{"patch": "x"}', '{"patch": "x"}'), ("{}", "")])
async def test_call_that_is_whole_before_the_answer_is_cut(server: RunningServer, arguments: str, text: str) -> None:
    """The answer ends between the input and the end of the call."""
    said = f'<tool_call> {{"name": "patch", "arguments": {arguments} }}'
    num_words = len(said.split()) - 1
    assert await ask(server, said, max_tokens=num_words) == (None, [custom(text)], "length")


async def test_past_calls(server: RunningServer) -> None:
    calls = [custom(PATCH) | {"id": "call_1"}, custom("x")]
    messages = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "Done!"},
    ]
    assert (await chat(server, messages=messages, tools=TOOLS)).status == 200
    written, _ = server.scripted.history[-1].prompt.split("\n")
    *_, said, result = json.loads(written)
    functions = [{"name": "patch", "arguments": {"input": text}} for text in (PATCH, "x")]
    assert [(call["type"], call["function"]) for call in said["tool_calls"]] == [
        ("function", each) for each in functions
    ]
    assert all(call["id"] for call in said["tool_calls"])
    assert result["tool_call_id"] == "call_1"


async def test_lmi_form(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL))
    answer = await server.post("/invocations", {"messages": MESSAGES, "tools": TOOLS})
    assert without_ids(answer.json()["choices"][0]["message"]["tool_calls"]) == [custom(PATCH)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tools": [{"type": "custom"}]}, "`tools.0.custom` is required"),
        (
            {"tools": [{"type": "custom", "custom": {"name": ""}}]},
            "`tools.0.custom.name` must have at least 1 character",
        ),
        (
            {"tools": [{"type": "custom", "custom": {"name": "x", "format": {"type": "grammar"}}}]},
            "`tools.0.custom.format` must have the `syntax` and the `definition` of the grammar",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "custom"}},
            "`tool_choice` must be none, auto, required or a named tool",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "custom", "custom": {"name": "pach"}}},
            "`tool_choice` must name one of `tools`. Given: 'pach'. Did you mean `patch`?",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom"}]}]},
            "`messages.0.tool_calls.0.custom` is required",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"type": "shell"}]}]},
            "`messages.0.tool_calls.0` must be of the type function or custom",
        ),
    ],
)
async def test_invalid_request(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    answer = await chat(server, **fields)
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith(message)

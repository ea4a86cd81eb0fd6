"""Tools in Anthropic's dialect: their definitions, uses and results, whole and streamed."""

import json
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.anthropic.asking import CALL, SHOWN, WEATHER, ask, events, message, refusal, rendered

TOOLS = [WEATHER, {"type": "custom", "name": "time", "input_schema": {"properties": {}}}]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.tool_call_parser=hermes\n" + SHOWN}))


def join_blocks(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the content of a stream's blocks, asserting that one ends before the next begins."""
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in found:
        match event["type"]:
            case "content_block_start":
                assert (is_open, event["index"]) == (False, len(blocks))
                blocks.append(event["content_block"] | {"json": ""})
                is_open = True
            case "content_block_delta":
                assert (is_open, event["index"]) == (True, len(blocks) - 1)
                delta = event["delta"]
                if delta["type"] == "text_delta":
                    blocks[-1]["text"] += delta["text"]
                else:
                    blocks[-1]["json"] += delta["partial_json"]
            case "content_block_stop":
                assert (is_open, event["index"]) == (True, len(blocks) - 1)
                is_open = False
    assert not is_open
    for block in blocks:
        if (written := block.pop("json")) or block["type"] == "tool_use":
            block["input"] = json.loads(written or "{}")
    return blocks


async def both(server: RunningServer, said: str, **fields: Any) -> dict[str, Any]:
    """Return a whole message, of which a stream must have the same content and end, but for the ids of uses."""
    server.scripted.enqueue(Script(said), Script(tokens=list(said)))
    whole = await message(server, max_tokens=1000, **fields)
    found = await events(server, max_tokens=1000, **fields)
    streamed = join_blocks(found)
    for block in [*whole["content"], *streamed]:
        if block["type"] == "tool_use":
            assert block.pop("id").startswith("toolu_")
    assert streamed == whole["content"]
    assert found[-2]["delta"]["stop_reason"] == whole["stop_reason"]
    return whole


async def test_use_after_a_text(server: RunningServer) -> None:
    found = await both(server, f"Let me see. {CALL}", tools=TOOLS)
    assert found["content"] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "name": "weather", "input": {"city": "Paris"}},
    ]
    assert found["stop_reason"] == "tool_use"


async def test_text_within_a_use_follows_it(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "option.tool_call_parser=qwen3_coder\n" + SHOWN
    server = await serve(model_dir({"serving.properties": properties}))
    said = "<function=weather>In France.<parameter=city>Paris</parameter></function>"
    assert (await both(server, said, tools=TOOLS))["content"] == [
        {"type": "tool_use", "name": "weather", "input": {"city": "Paris"}},
        {"type": "text", "text": "In France."},
    ]


async def test_several_uses(server: RunningServer) -> None:
    said = CALL + CALL.replace("Paris", "Rome") + '<tool_call>{"name": "time", "arguments": {}}</tool_call>'
    uses = [(block["name"], block["input"]) for block in (await both(server, said, tools=TOOLS))["content"]]
    assert uses == [("weather", {"city": "Paris"}), ("weather", {"city": "Rome"}), ("time", {})]
    one = await both(server, said, tools=TOOLS, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [block["input"] for block in one["content"]] == [{"city": "Paris"}]


async def test_definitions(server: RunningServer) -> None:
    await message(server, tools=TOOLS)
    tools = rendered(server, "tools")
    assert [tool["type"] for tool in tools] == ["function", "function"]
    assert tools[0]["function"] == {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": WEATHER["input_schema"],
    }
    assert tools[1]["function"]["parameters"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("choice", "said", "reason"),
    [
        ({"type": "any"}, '[{"name": "weather", "parameters": {"city": "Paris"}}]', "tool_use"),
        ({"type": "tool", "name": "weather"}, '{"city": "Paris"}', "tool_use"),
        ({"type": "none"}, "Paris", "end_turn"),
    ],
)
async def test_choices(server: RunningServer, choice: dict[str, Any], said: str, reason: str) -> None:
    found = await both(server, said, tools=TOOLS, tool_choice=choice)
    assert found["stop_reason"] == reason
    guide = parameters(server).guided_json
    if reason == "tool_use":
        assert found["content"] == [{"type": "tool_use", "name": "weather", "input": {"city": "Paris"}}]
        assert guide is not None
    else:
        assert (found["content"], guide) == ([{"type": "text", "text": "Paris"}], None)
        assert "weather" not in server.scripted.history[-1].prompt


async def test_use_that_was_cut(server: RunningServer) -> None:
    """A call that is cut has its input as far as it goes, as Anthropic's client makes it of a stream."""
    server.scripted.enqueue(
        Script(tokens=["<tool_call>", '{"name": "weather", "arguments": {"city": "Paris",', " more"])
    )
    found = await message(server, tools=TOOLS, max_tokens=2)
    assert (found["content"][0]["input"], found["stop_reason"]) == ({"city": "Paris"}, "max_tokens")
    server.scripted.enqueue(
        Script(tokens=["<tool_call>", '{"name": "weather", "arguments": {"city": "Paris",', " STOP"])
    )
    found = await message(server, tools=TOOLS, stop_sequences=["STOP"])
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", "STOP")


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"city": 123456789012345678901234567890}', {"city": 123456789012345678901234567890}),
        ('["Paris"]', {"INVALID_JSON": '["Paris"]'}),
        ("Paris", {"INVALID_JSON": "Paris"}),
        ('{"city": NaN}', {"INVALID_JSON": '{"city": NaN}'}),
        ("", {}),
    ],
)
async def test_input_that_no_schema_guided(server: RunningServer, arguments: str, given: Any) -> None:
    """NamedCall passes on whatever the model wrote, which the scripted backend does without its guide."""
    server.scripted.enqueue(Script(tokens=[arguments or " "]))
    answer = await ask(server, tools=TOOLS, tool_choice={"type": "tool", "name": "weather"})
    assert json.loads(answer.body)["content"][0]["input"] == given


async def test_stop_text_after_a_whole_use(server: RunningServer) -> None:
    server.scripted.enqueue(Script(CALL + " STOP"))
    found = await message(server, tools=TOOLS, stop_sequences=["STOP"])
    assert (found["stop_reason"], found["stop_sequence"]) == ("tool_use", None)


async def test_uses_and_results_of_the_past(server: RunningServer) -> None:
    messages = [
        {"role": "user", "content": "How is Paris?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "I must look.", "signature": "any"},
                {"type": "redacted_thinking", "data": "EmwKAhgB"},
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Paris"}},
                {"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}, "caller": {"type": "direct"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "clock"}],
                    "is_error": True,
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "text", "text": "And?"},
            ],
        },
        {"role": "user", "content": "Quick!"},
    ]
    await message(server, messages=messages, tools=TOOLS)
    assert rendered(server) == [
        {"role": "user", "content": "How is Paris?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "reasoning_content": "I must look.",
            "reasoning": "I must look.",
            "tool_calls": [
                {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}},
                {"id": "toolu_2", "type": "function", "function": {"name": "time", "arguments": {}}},
            ],
        },
        {"role": "tool", "content": "sunny", "tool_call_id": "toolu_1"},
        {"role": "tool", "content": "no\nclock", "tool_call_id": "toolu_2", "is_error": True},
        {"role": "user", "content": "And?\nQuick!"},
    ]


async def test_result_without_content(server: RunningServer) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "time", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    await message(server, messages=messages)
    assert rendered(server)[1:] == [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "toolu_1", "type": "function", "function": {"name": "time", "arguments": {}}}],
        },
        {"role": "tool", "content": "", "tool_call_id": "toolu_1"},
    ]


async def test_tools_of_other_types_beside_custom_ones(server: RunningServer) -> None:
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}
    answer = await ask(server, tools=[search, *TOOLS])
    assert answer.status == 200, answer.body
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "tools.web_search_20250305"
    assert [tool["function"]["name"] for tool in rendered(server, "tools")] == [tool["name"] for tool in TOOLS]
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [search, *TOOLS]}
    counted = await server.post("/v1/messages/count_tokens", body)
    assert counted.headers["X-Lmi-Ignored-Parameters"] == "tools.web_search_20250305"
    error = (await ask(server, tools=[search, *TOOLS, {"type": "custom"}])).json()["error"]
    assert error["message"] == f"`tools.{len(TOOLS) + 1}.name` is required"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            "`tools` must have one of the type custom: this server has no built-in tools. Given: [{'type': 'web_se",
        ),
        ({"tools": [{"name": "weather"}]}, "`tools.0` must have an `input_schema`"),
        (
            {"tools": [{"name": "weather", "input_schema": {"properties": {"city": {"type": "text"}}}}]},
            "`tools.0.input_schema` is not a valid JSON schema: its `properties.city.type` must be one of",
        ),
        ({"tool_choice": {"type": "any"}}, "`tool_choice` requires `tools`. Given: any"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "tool", "name": "whether"}},
            "`tool_choice` must name one of `tools`. Given: 'whether'. Did you mean `weather`?",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "tool"}},
            "`tool_choice` must have the `name` of a tool if and only if its `type` is tool",
        ),
    ],
)
async def test_wrong_tools(server: RunningServer, fields: dict[str, Any], told: str) -> None:
    assert (await refusal(server, **fields)).startswith(told)


async def test_own_code_gets_anthropics_answer(serve: Serve, model_dir: ModelDirectory) -> None:
    script = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def count(response_data: dict) -> dict:
    return response_data | {"counted": len(response_data)}
"""
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    assert "counted" in await message(server)

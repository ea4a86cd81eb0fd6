"""Thinking and structured outputs in Anthropic's dialect."""

from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.anthropic.asking import CALL, COUNT, WEATHER, ask, events, message, refusal
from tests.module_server import module_server

# Shows the names by which templates know of thinking.
DEFINED = (
    "option.chat_template=[{{ enable_thinking | default(none) | tojson }}, {{ thinking | default(none) | tojson }}, "
    "{{ reasoning_effort | default(none) | tojson }}]\n"
)
PROPERTIES = f"{SCRIPTED}option.reasoning_parser=qwen3\noption.tool_call_parser=hermes\n"
THOUGHT = "<think>\nLet me see.\n</think>\n\nYes, it is."
ENABLED = {"type": "enabled", "budget_tokens": 1024}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share


server = module_server(PROPERTIES)


def signed(thinking: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thinking, "signature": "msg_one"}


@same_loop
async def test_whole_message(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    found = await message(server, headers={"x-request-id": "one"})
    assert found["content"] == [signed("Let me see."), {"type": "text", "text": "Yes, it is."}]
    assert (found["usage"]["output_tokens"], found["usage"]["output_tokens_details"]) == (8, {"thinking_tokens": 5})


@same_loop
async def test_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script(tokens=["<think>", "\nLet me", " see.", "\n</think>", "\n\nYes", ", it is."]))
    found = await events(server, headers={"x-request-id": "one"})
    assert [(event["type"], event.get("index"), event.get("delta", {}).get("type")) for event in found[2:]] == [
        ("content_block_start", 0, None),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "signature_delta"),
        ("content_block_stop", 0, None),
        ("content_block_start", 1, None),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_stop", 1, None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]
    assert found[2]["content_block"] == signed("") | {"signature": ""}
    assert [event["delta"] for event in found[3:6]] == [
        {"type": "thinking_delta", "thinking": "Let me"},
        {"type": "thinking_delta", "thinking": " see."},
        {"type": "signature_delta", "signature": "msg_one"},
    ]
    assert found[-2]["usage"]["output_tokens_details"] == {"thinking_tokens": 4}


@same_loop
async def test_thinking_alone(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT), Script(THOUGHT))
    headers = {"x-request-id": "one"}
    found = await message(server, headers=headers, max_tokens=3)
    assert (found["content"], found["stop_reason"]) == ([signed("Let me")], "max_tokens")
    streamed = await events(server, headers=headers, max_tokens=3)
    assert [event["type"] for event in streamed].count("content_block_start") == 1


@same_loop
async def test_thinking_before_a_use_of_a_tool(server: RunningServer) -> None:
    server.scripted.enqueue(Script(f"<think>Weather.</think>{CALL}"))
    found = await message(server, tools=[WEATHER])
    assert [block["type"] for block in found["content"]] == ["thinking", "tool_use"]
    assert found["stop_reason"] == "tool_use"


@same_loop
async def test_omitted_thinking(server: RunningServer) -> None:
    """Hidden thinking is an empty block, so that a client sees that there was some."""
    fields = {"thinking": ENABLED | {"display": "omitted"}, "max_tokens": 2000, "headers": {"x-request-id": "one"}}
    server.scripted.enqueue(Script(THOUGHT), Script(THOUGHT))
    assert (await message(server, **fields))["content"][0] == signed("")
    deltas = [event["delta"] for event in await events(server, **fields) if event["type"] == "content_block_delta"]
    assert deltas[0] == {"type": "signature_delta", "signature": "msg_one"}
    assert "".join(delta.get("text", "") for delta in deltas) == "Yes, it is."


@same_loop
async def test_budget(server: RunningServer) -> None:
    await message(server, thinking=ENABLED, max_tokens=2000)
    budget = parameters(server).reasoning_budget
    assert budget is not None
    assert budget.tokens == 1024
    await message(server, thinking={"type": "adaptive"})
    assert parameters(server).reasoning_budget is None
    wrong = [
        (ENABLED | {"budget_tokens": 1000}, "`thinking.budget_tokens` must be greater than or equal to 1024"),
        (ENABLED, "`thinking.budget_tokens` must be less than `max_tokens`, 64. Given: 1024"),
        ({"type": "enabled"}, "`thinking` must have `budget_tokens` if and only if its `type` is enabled"),
        ({"type": "on"}, "`thinking.type` must be 'enabled', 'adaptive' or 'disabled'"),
    ]
    for thinking, told in wrong:
        assert (await refusal(server, thinking=thinking)).startswith(told)
    told = "`thinking.budget_tokens` must be less than `max_tokens`, 1024. Given: 1024"
    assert (await refusal(server, thinking=ENABLED, max_tokens=1024)).startswith(told)
    assert (await ask(server, COUNT, max_tokens=..., thinking=ENABLED)).status == 200


async def test_model_that_keeps_to_no_budget(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    answer = await ask(server, thinking=ENABLED, max_tokens=2000)
    assert (answer.status, answer.headers["X-Lmi-Ignored-Parameters"]) == (200, "thinking.budget_tokens")
    strict = await serve(model_dir({"serving.properties": SCRIPTED + "option.strict_parameters=true\n"}, "strict"))
    assert (await refusal(strict, model="strict", thinking=ENABLED, max_tokens=2000)).startswith(
        "`thinking.budget_tokens` has no effect: this model's reasoning has no end that could be forced"
    )
    assert (await refusal(strict, model="strict", context_management={})).startswith(
        "`context_management` is not a field of this request"
    )


@pytest.mark.parametrize(
    ("fields", "on", "effort"),
    [
        ({}, [None, None], None),
        ({"thinking": ENABLED, "max_tokens": 2000}, [True, True], None),
        ({"thinking": {"type": "disabled"}}, [False, False], None),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}}, [True, None], "xhigh"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, [False, False], "low"),
        ({"thinking": {"type": "disabled"}, "chat_template_kwargs": {"thinking": True}}, [False, True], None),
    ],
)
async def test_what_the_template_is_told(
    serve: Serve, model_dir: ModelDirectory, fields: dict[str, Any], on: list[bool | None], effort: str | None
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + DEFINED}))
    await message(server, **fields)
    assert orjson.loads(server.scripted.history[-1].prompt) == [*on, effort]


@same_loop
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("output_config", {"format": {"type": "json_schema", "schema": SCHEMA}}),
        ("output_format", {"type": "json_schema", "schema": SCHEMA}),
    ],
)
async def test_structured_output(server: RunningServer, field: str, value: dict[str, Any]) -> None:
    server.scripted.enqueue(Script('{"city": "Paris"}'))
    fields = {field: value}
    assert (await message(server, **fields))["content"] == [{"type": "text", "text": '{"city": "Paris"}'}]
    assert parameters(server).guided_json == SCHEMA
    name = field if field == "output_format" else "output_config.format"
    assert await refusal(server, **fields, tools=[WEATHER], tool_choice={"type": "any"}) == (
        f"`tool_choice` and `{name}` cannot be used together: both constrain the output"
    )


@same_loop
async def test_vllms_structured_output(server: RunningServer) -> None:
    server.scripted.enqueue(Script("yes"))
    await message(server, structured_outputs={"choice": ["yes", "no"]})
    assert parameters(server).guided_choice == ["yes", "no"]

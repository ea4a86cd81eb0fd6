"""Reasoning in chats: through the server, with a scripted model whose tokens are cut anywhere."""

from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, RunningServer, parameters
from tests.handlers.openai.chats import EMPTY_MESSAGE, MESSAGES, chat, events
from tests.module_server import module_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEMPLATE = """\
{% for tool in tools or [] %}tool: {{ tool.function.name }}
{% endfor %}{% for message in messages %}{{ message.role }}: {{ message.reasoning_content }}{{ message.content }}
{% endfor %}{% if add_generation_prompt %}assistant:\
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% elif open %}<think>
{% endif %}{% endif %}"""
PROPERTIES = (
    f"{SCRIPTED}option.enable_reasoning=True\noption.reasoning_parser=qwen3\noption.tool_call_parser=hermes\n"
    "option.chat_template=template.jinja\n"
)
THOUGHT = "<think>\nLet me see.\n</think>\n\nYes, it is."
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'


server = module_server({"serving.properties": PROPERTIES, "template.jinja": TEMPLATE})


def joined(deltas: list[dict[str, Any]], name: str) -> str:
    return "".join(delta.get(name) or "" for delta in deltas)


async def message(server: RunningServer, script: Script, **fields: Any) -> dict[str, Any]:
    server.scripted.enqueue(script)
    answer = await chat(server, **fields)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json()["choices"][0]["message"]
    return found


TEXT = {"type": "text", "text": "Yes."}


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        ([{"type": "thinking", "thinking": "So."}, TEXT], "So.Yes."),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "So"}, "."]}, TEXT], "So.Yes."),
        ([{"type": "text", "text": None}, TEXT], "Yes."),
    ],
)
async def test_past_answers_in_parts(server: RunningServer, past: list[object], expected: str) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": past}, *MESSAGES]
    assert (await chat(server, messages=messages)).status == 200
    assert f"\nassistant: {expected}\nsystem:" in server.scripted.history[-1].prompt


async def test_reasoning_beside_thinking_takes_precedence(server: RunningServer) -> None:
    parts = [{"type": "thinking", "thinking": "Hm."}, TEXT]
    messages = [*MESSAGES, {"role": "assistant", "reasoning": "So.", "content": parts}, *MESSAGES]
    assert (await chat(server, messages=messages)).status == 200
    assert "\nassistant: So.Yes.\nsystem:" in server.scripted.history[-1].prompt


async def test_thinking_that_is_no_text(server: RunningServer) -> None:
    messages = [{"role": "assistant", "content": [{"type": "thinking", "thinking": 1}]}, *MESSAGES]
    error = (await chat(server, messages=messages)).json()["error"]
    assert error["message"].startswith("`messages.0` must have a text, or a list of texts, as `thinking` of a part of")
    messages = [{"role": "user", "content": [{"type": "thinking", "thinking": "So."}]}]
    assert (await chat(server, messages=messages)).status == 400


async def test_whole_answer(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    answer = (await chat(server)).json()
    assert answer["choices"][0]["message"] == EMPTY_MESSAGE | {
        "role": "assistant",
        "content": "Yes, it is.",
        "reasoning_content": "Let me see.",
        "reasoning": "Let me see.",
    }
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] == 8
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}


@pytest.mark.parametrize("cut", range(1, len(THOUGHT)))
async def test_stream_however_tokens_are_cut(server: RunningServer, cut: int) -> None:
    server.scripted.enqueue(Script(tokens=[THOUGHT[i : i + cut] for i in range(0, len(THOUGHT), cut)]))
    chunks = events(await chat(server, stream=True, stream_options={"include_usage": True}))
    *chunks, usage = chunks
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert joined(deltas, "reasoning_content") == joined(deltas, "reasoning") == "Let me see."
    assert joined(deltas, "content") == "Yes, it is."
    in_order = ["content" in delta for delta in deltas[1:-1]]
    assert in_order == sorted(in_order)  # the content begins after the end of the reasoning
    assert all(delta for delta in deltas[:-1])
    assert usage["usage"]["completion_tokens_details"]["reasoning_tokens"] <= usage["usage"]["completion_tokens"]


async def test_answer_that_is_cut_in_the_reasoning(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    choice = (await chat(server, max_tokens=3)).json()["choices"][0]
    assert choice["finish_reason"] == "length"
    assert (choice["message"]["content"], choice["message"]["reasoning_content"]) == (None, "Let me")


async def test_answer_without_reasoning(server: RunningServer) -> None:
    assert await message(server, Script("Yes, it is.")) == EMPTY_MESSAGE | {
        "role": "assistant",
        "content": "Yes, it is.",
    }


async def test_prompt_that_opened_the_reasoning(server: RunningServer) -> None:
    found = await message(server, Script("Let me see.</think>Yes."), chat_template_kwargs={"open": True})
    assert server.scripted.history[-1].prompt.endswith("assistant:<think>\n")
    assert (found["reasoning_content"], found["content"]) == ("Let me see.", "Yes.")


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"reasoning": {"effort": "none", "exclude": None}},
        {"reasoning": {"effort": "", "enabled": False}},
        {"reasoning": False},
        {"reasoning": "none"},
        {"reasoning": {"effort": "high"}, "reasoning_effort": "none"},
    ],
)
async def test_reasoning_that_is_turned_off(server: RunningServer, fields: dict[str, Any]) -> None:
    found = await message(server, Script("Yes."), **fields)
    assert server.scripted.history[-1].prompt.endswith("assistant:<think>\n\n</think>\n\n")
    assert found == EMPTY_MESSAGE | {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize("fields", [{"include_reasoning": False}, {"reasoning": {"exclude": True, "max_tokens": 9}}])
@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_left_out(server: RunningServer, stream: bool, fields: dict[str, Any]) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    answer = await chat(server, **fields, stream=stream)
    budget = parameters(server).reasoning_budget
    assert (budget and budget.tokens) == fields.get("reasoning", {}).get("max_tokens")
    assert b"Let" not in answer.body
    assert b'"reasoning":"' not in answer.body
    assert b"Yes," in answer.body


REASON_AND_CALL = f"<think>I could say <tool_call, or so.</think>\n{CALL}"


async def test_tool_calls_of_a_stream_are_looked_for_in_the_content(server: RunningServer) -> None:
    server.scripted.enqueue(Script(REASON_AND_CALL))
    deltas = [event["choices"][0]["delta"] for event in events(await chat(server, tools=[WEATHER], stream=True))]
    called = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert "".join(call["function"].get("arguments", "") for call in called) == '{"city": "Paris"}'
    assert joined(deltas, "reasoning_content") == "I could say <tool_call, or so."
    assert joined(deltas, "content") == ""


async def test_tool_calls_are_looked_for_in_the_content(server: RunningServer) -> None:
    server.scripted.enqueue(Script(REASON_AND_CALL))
    choice = (await chat(server, tools=[WEATHER])).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"] == "I could say <tool_call, or so."
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Paris"}'}


async def test_tool_call_ends_the_reasoning(server: RunningServer) -> None:
    found = await message(server, Script(f"<think>So.\n{CALL}"), tools=[WEATHER])
    assert (found["reasoning_content"], found["content"]) == ("So.", None)
    assert found["tool_calls"][0]["function"]["name"] == "weather"


GUIDED: list[dict[str, Any]] = [
    {"response_format": {"type": "json_object"}},
    {"guided_regex": "x+"},
    {"structured_outputs": {"choice": ["x"]}},
    {"tools": [WEATHER], "tool_choice": "required"},
]


@pytest.mark.parametrize("fields", GUIDED)
@pytest.mark.parametrize(("opened", "markers"), [(True, ["", "</think>"]), (False, ["<think>", "</think>"])])
async def test_guide_begins_after_the_reasoning(
    server: RunningServer, fields: dict[str, Any], opened: bool, markers: list[str]
) -> None:
    said = "Let me see <tool_call>.</think>\n{}"
    script = Script(said if opened else f"<think>{said}")
    found = await message(server, script, chat_template_kwargs={"open": opened}, **fields)
    assert parameters(server).guided_reasoning == markers
    assert (found["content"], found["reasoning_content"]) == ("{}", "Let me see <tool_call>.")


@pytest.mark.parametrize("fields", GUIDED)
async def test_guided_answer_without_reasoning(server: RunningServer, fields: dict[str, Any]) -> None:
    found = await message(server, Script("{}"), reasoning_effort="none", **fields)
    assert parameters(server).guided_reasoning is None
    assert (found["content"], found["reasoning"]) == ("{}", None)


async def test_several_choices(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    answer = (await chat(server, n=2)).json()
    assert [choice["message"]["reasoning"] for choice in answer["choices"]] == ["Let me see."] * 2
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 10}


async def test_log_probabilities_are_of_all_tokens(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    stream = events(await chat(server, stream=True, logprobs=True))
    content = [token for each in stream for token in (each["choices"][0]["logprobs"] or {}).get("content", [])]
    assert "".join(token["token"] for token in content) == THOUGHT


async def test_reasoning_in_the_history(server: RunningServer) -> None:
    """Templates have the older name, clients send the newer one too."""
    said = {"role": "assistant", "content": "Yes.", "reasoning": "Let me see. "}
    await chat(server, messages=[*MESSAGES, said, {"role": "user", "content": "And?"}])
    assert "assistant: Let me see. Yes.\n" in server.scripted.history[-1].prompt


async def test_answer_that_is_continued(server: RunningServer) -> None:
    begun = {"role": "assistant", "content": "<think>Let me"}
    found = await message(
        server,
        Script(" see.</think>Yes."),
        messages=[*MESSAGES, begun],
        continue_final_message=True,
        add_generation_prompt=False,
    )
    assert server.scripted.history[-1].prompt.endswith("assistant: <think>Let me")
    assert (found["reasoning_content"], found["content"]) == ("see.", "Yes.")


@pytest.mark.parametrize(
    ("begun", "markers"), [("<think>Let me", ["", "</think>"]), ("<think>So.</think>{", None), ("{", None)]
)
async def test_guide_of_an_answer_that_is_continued(
    server: RunningServer, begun: str, markers: list[str] | None
) -> None:
    await message(
        server,
        Script("}"),
        messages=[*MESSAGES, {"role": "assistant", "content": begun}],
        continue_final_message=True,
        add_generation_prompt=False,
        guided_regex="x+",
    )
    assert parameters(server).guided_reasoning == markers


async def test_lmi_chats(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT), Script(THOUGHT))
    whole = (await server.post("/invocations", {"messages": MESSAGES})).json()
    found = whole["choices"][0]["message"]
    assert (found["content"], found["reasoning_content"]) == ("Yes, it is.", "Let me see.")
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 5}
    lines = (await server.post("/invocations", {"messages": MESSAGES, "stream": True})).json_lines()
    deltas = [line["choices"][0]["delta"] for line in lines]
    assert joined(deltas, "reasoning_content") == "Let me see."
    assert joined(deltas, "content") == "Yes, it is."
    assert lines[-1]["choices"][0]["finish_reason"] == "eos_token"


async def test_reasoning_is_part_of_the_text_elsewhere(server: RunningServer) -> None:
    server.scripted.enqueue(Script(THOUGHT))
    answer = await server.post("/v1/completions", {"prompt": "Hi"})
    assert answer.json()["choices"][0]["text"] == THOUGHT
    assert parameters(server).max_new_tokens == 16

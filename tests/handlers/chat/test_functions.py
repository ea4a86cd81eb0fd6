"""OpenAI's older form of tools, `functions`, over a real socket."""

from typing import Any

import orjson
import pytest

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.chat.said_calls import PARIS
from tests.handlers.openai.chats import TEXT, chat, events

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTIONS = [{"name": "weather", "description": "Of a city.", "parameters": CITY}, {"name": "clock"}]
TAGGED = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
SECOND = '\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
CALL = {"name": "weather", "arguments": PARIS}
NAMED = {"name": "weather"}
SHOWS_ALL = "{% for message in messages %}{{ message | tojson }}\n{% endfor %}{# tools #}"
KIMI = "<|tool_call_begin|><|tool_call_argument_begin|>"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.tool_call_parser=hermes\n"}))


async def ask(server: RunningServer, said: str, **fields: Any) -> tuple[dict[str, Any], str]:
    """Return the message and its finish reason, which are the same whole and streamed."""
    server.scripted.enqueue(Script(said), Script(said))
    answer = await chat(server, functions=FUNCTIONS, **fields)
    assert answer.status == 200, answer.body
    (choice,) = answer.json()["choices"]
    streamed = events(await chat(server, functions=FUNCTIONS, stream=True, **fields))
    deltas = [chunk["choices"][0]["delta"] for chunk in streamed]
    content = "".join(delta.get("content", "") for delta in deltas)
    calls = [delta["function_call"] for delta in deltas if "function_call" in delta]
    message = choice["message"]
    assert content == (message["content"] or "")
    if calls:
        assert message["function_call"] == {
            "name": calls[0]["name"],
            "arguments": "".join(call["arguments"] for call in calls),
        }
        assert all("name" not in call for call in calls[1:])
    assert "function_call" in message or not calls
    assert streamed[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
    assert "tool_calls" not in {*message, *(name for delta in deltas for name in delta)}
    return message, choice["finish_reason"]


async def test_call(server: RunningServer) -> None:
    message, reason = await ask(server, TAGGED)
    assert (message["content"], message["function_call"], reason) == ("Let me see.", CALL, "function_call")
    assert server.scripted.history[-1].prompt.startswith("tool: weather\ntool: clock\n")


async def test_one_call_at_most(server: RunningServer) -> None:
    message, reason = await ask(server, TAGGED + SECOND, function_call="auto", parallel_tool_calls=True)
    assert (message["function_call"], reason) == (CALL, "function_call")


async def test_no_call(server: RunningServer) -> None:
    message, reason = await ask(server, TEXT)
    assert (message["content"], message["function_call"], reason) == (TEXT, None, "stop")


async def test_none(server: RunningServer) -> None:
    message, reason = await ask(server, TAGGED, function_call="none")
    assert (message["content"], reason) == (TAGGED, "stop")
    assert "tool:" not in server.scripted.history[-1].prompt


async def test_named_function(server: RunningServer) -> None:
    """A call of a named function has OpenAI's finish reason for it."""
    message, reason = await ask(server, PARIS, function_call=NAMED)
    assert (message["content"], message["function_call"], reason) == (None, CALL, "stop")
    assert parameters(server).guided_json == CITY


async def test_choices(server: RunningServer) -> None:
    server.scripted.enqueue(Script(TAGGED))
    choices = (await chat(server, functions=FUNCTIONS, n=2)).json()["choices"]
    assert [choice["message"]["function_call"] for choice in choices] == [CALL, CALL]


@pytest.mark.parametrize("stream", [False, True])
async def test_lmis_form(server: RunningServer, stream: bool) -> None:
    server.scripted.enqueue(Script(TAGGED))
    body = {"messages": [{"role": "user", "content": "Hi"}], "functions": FUNCTIONS, "stream": stream}
    answer = await server.post("/invocations", body)
    choices = [line["choices"][0] for line in (answer.json_lines() if stream else [answer.json()])]
    calls = [call for choice in choices if (call := choice.get("delta", choice.get("message")).get("function_call"))]
    assert (calls[0]["name"], "".join(call["arguments"] for call in calls)) == ("weather", PARIS)
    assert choices[-1]["finish_reason"] == "eos_token"


async def rendered(server: RunningServer, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await chat(server, messages=[*messages, {"role": "user", "content": "And now?"}])
    assert answer.status == 200, answer.body
    prompt = server.scripted.history[-1].prompt
    return [orjson.loads(line) for line in prompt.removesuffix(KIMI).splitlines()][:-1]


@pytest.mark.parametrize(
    ("sign", "ids"),
    [("", ["call00000", "call00001"]), (KIMI, ["functions.weather:0", "functions.clock:1"])],
)
async def test_past_calls(serve: Serve, model_dir: ModelDirectory, sign: str, ids: list[str]) -> None:
    """The chat template gets them as calls of tools, each with its result."""
    properties = SCRIPTED + "option.chat_template=all.jinja\n"
    server = await serve(model_dir({"serving.properties": properties, "all.jinja": SHOWS_ALL + sign}))
    found = await rendered(
        server,
        {"role": "assistant", "content": None, "function_call": CALL, "tool_calls": None},
        {"role": "function", "name": "weather", "content": "sunny"},
        {"role": "assistant", "content": "Sunny.", "function_call": {"name": "clock", "arguments": ""}},
        {"role": "function", "name": "clock", "content": "noon"},
    )
    calls = [
        {"id": ids[0], "type": "function", "function": {"name": "weather", "arguments": {"city": "Paris"}}},
        {"id": ids[1], "type": "function", "function": {"name": "clock", "arguments": {}}},
    ]
    assert found == [
        {"role": "assistant", "content": "", "tool_calls": [calls[0]]},
        {"role": "tool", "content": "sunny", "name": "weather", "tool_call_id": ids[0]},
        {"role": "assistant", "content": "Sunny.", "tool_calls": [calls[1]]},
        {"role": "tool", "content": "noon", "name": "clock", "tool_call_id": ids[1]},
    ]


async def test_result_without_its_call(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "option.chat_template=all.jinja\n"
    server = await serve(model_dir({"serving.properties": properties, "all.jinja": SHOWS_ALL}))
    (result,) = await rendered(server, {"role": "function", "name": "weather", "content": "sunny"})
    assert result == {"role": "tool", "content": "sunny", "name": "weather", "tool_call_id": "call00000"}


async def test_empty_functions_ask_for_nothing(server: RunningServer) -> None:
    answer = await chat(server, functions=[], function_call="auto")
    assert (answer.status, answer.json()["choices"][0]["message"]["content"]) == (200, TEXT)
    assert parameters(server) == ExtendedParameters(do_sample=True, max_new_tokens=2048 - 9)


async def test_refusals_name_the_older_fields_and_leave_what_was_given(server: RunningServer) -> None:
    answer = await chat(server, functions=[{"name": "tool_choice"}], function_call={"name": "`tools`"})
    assert (answer.status, answer.json()["error"]["message"]) == (
        400,
        "`function_call` must name one of `functions`. Given: '`tools`'.",
    )


async def test_arguments_of_a_past_call_that_are_nested_too_deeply(server: RunningServer) -> None:
    call = {"name": "weather", "arguments": {"city": orjson.loads("[" * 300 + "]" * 300)}}
    answer = await chat(server, messages=[{"role": "assistant", "function_call": call}])
    assert (answer.status, answer.json()["error"]["param"]) == (400, "messages.0.function_call.arguments")

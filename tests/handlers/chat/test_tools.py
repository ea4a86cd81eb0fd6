"""Tools and tool choices over a real socket: what the model is told, and what becomes of its calls."""

import json
import re
from typing import Any

import pytest

from lmi_core.configuration.configuration import Configuration
from lmi_core.configuration.properties import RequestProperties
from lmi_core.errors import ConfigurationError
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.parsing.tool_calls.formats import find_format
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.chat.said_calls import BARE, PARIS, SAID
from tests.handlers.openai.chats import chat, events

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "clock"}},
]
TAGGED = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
SECOND = '\n<tool_call>\n{"name": "clock", "arguments": {}}\n</tool_call>'
LIST = '[{"name": "weather", "parameters": {"city": "Paris"}}, {"name": "clock", "parameters": {}}]'
NAMED = {"type": "function", "function": {"name": "weather"}}

Calls = list[tuple[str, str]]


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED + "option.tool_call_parser=hermes\n"}))


async def ask(server: RunningServer, said: str, **fields: Any) -> tuple[str | None, Calls, str]:
    """Content, calls and finish reason, which must be the same whole and streamed."""
    server.scripted.enqueue(Script(said), Script(said))
    (choice,) = (await chat(server, tools=TOOLS, **fields)).json()["choices"]
    message = choice["message"]
    whole = message["content"], _calls(message.get("tool_calls", [])), choice["finish_reason"]
    chunks = events(await chat(server, tools=TOOLS, stream=True, **fields))
    content, calls = _assembled([chunk["choices"][0]["delta"] for chunk in chunks])
    assert (content or ("" if whole[0] == "" else None), calls, chunks[-1]["choices"][0]["finish_reason"]) == whole
    return whole


def _calls(calls: list[dict[str, Any]]) -> Calls:
    assert all(call["id"] and call["type"] == "function" for call in calls)
    return [(call["function"]["name"], call["function"]["arguments"]) for call in calls]


def _assembled(deltas: list[dict[str, Any]]) -> tuple[str, Calls]:
    calls: list[dict[str, Any]] = []
    for delta in deltas:
        for part in delta.get("tool_calls", []):
            if part["index"] == len(calls):
                calls.append(part)
            else:
                calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    return "".join(delta.get("content") or "" for delta in deltas), _calls(calls)


def guide(server: RunningServer) -> Any:
    parameters = server.scripted.history[-1].parameters
    assert isinstance(parameters, ExtendedParameters)
    return parameters.guided_json


async def test_template_gets_the_tools(server: RunningServer) -> None:
    await ask(server, "x")
    assert server.scripted.history[-1].prompt.startswith("tool: weather\ntool: clock\nsystem: ")
    assert guide(server) is None


async def test_automatic_call(server: RunningServer) -> None:
    assert await ask(server, TAGGED) == ("Let me see.", [("weather", PARIS)], "tool_calls")


async def test_several_calls(server: RunningServer) -> None:
    assert await ask(server, TAGGED + SECOND) == ("Let me see.", [("weather", PARIS), ("clock", "{}")], "tool_calls")


async def test_one_call_at_most(server: RunningServer) -> None:
    answer = await ask(server, TAGGED + SECOND, parallel_tool_calls=False)
    assert answer == ("Let me see.", [("weather", PARIS)], "tool_calls")


async def test_call_without_content(server: RunningServer) -> None:
    assert await ask(server, SECOND) == (None, [("clock", "{}")], "tool_calls")


async def test_model_that_calls_nothing(server: RunningServer) -> None:
    assert await ask(server, "It is sunny.") == ("It is sunny.", [], "stop")


async def test_arguments_are_streamed_as_they_come(server: RunningServer) -> None:
    server.scripted.enqueue(Script('<tool_call> {"name": "weather", "arguments": {"a": 1, "b": 2}} </tool_call>'))
    chunks = events(await chat(server, tools=TOOLS, stream=True))
    deltas = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert [delta["function"]["arguments"] for delta in deltas] == ["", '{"a":', " 1,", ' "b":', " 2}"]


async def test_call_that_is_cut(server: RunningServer) -> None:
    """A whole answer has its text as content; a stream has sent the beginning of the call already."""
    said = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city":'
    named = {"type": "function", "function": {"name": "weather"}}
    cuts = (("auto", said), ("required", '[{"name": "weather", "parameters": {"city":'), (named, '{"city":'))
    for tool_choice, text in cuts:
        server.scripted.enqueue(Script(f"{text} 1"))
        length = len(text.split())
        (choice,) = (await chat(server, tools=TOOLS, tool_choice=tool_choice, max_tokens=length)).json()["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == (text, "length")
        assert "tool_calls" not in choice["message"]
    server.scripted.enqueue(Script(TAGGED))
    *_, call, end = events(await chat(server, tools=TOOLS, max_tokens=8, stream=True))
    assert call["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] == '{"city":'
    assert end["choices"][0]["finish_reason"] == "length"


async def test_second_call_that_is_cut(server: RunningServer) -> None:
    server.scripted.enqueue(Script(TAGGED + SECOND))
    (choice,) = (await chat(server, tools=TOOLS, max_tokens=14)).json()["choices"]
    assert _calls(choice["message"]["tool_calls"]) == [("weather", PARIS)]
    assert choice["finish_reason"] == "length"


async def test_call_that_is_whole_before_the_answer_is_cut(server: RunningServer) -> None:
    assert await ask(server, TAGGED, max_tokens=9) == ("Let me see.", [("weather", PARIS)], "length")


async def test_no_tool_choice_hides_the_tools(server: RunningServer) -> None:
    assert await ask(server, TAGGED, tool_choice="none") == (TAGGED, [], "stop")
    assert "tool:" not in server.scripted.history[-1].prompt


async def test_required(server: RunningServer) -> None:
    answer = await ask(server, LIST, tool_choice="required")
    assert answer == (None, [("weather", PARIS), ("clock", "{}")], "tool_calls")
    schema = guide(server)
    assert (schema["type"], schema["minItems"], "maxItems" in schema) == ("array", 1, False)
    assert [one["properties"] for one in schema["items"]["anyOf"]] == [
        {"name": {"enum": ["weather"]}, "parameters": CITY},
        {"name": {"enum": ["clock"]}, "parameters": {"type": "object"}},
    ]


async def test_required_once(server: RunningServer) -> None:
    await chat(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    assert guide(server)["maxItems"] == 1


async def test_named_function(server: RunningServer) -> None:
    assert await ask(server, PARIS, tool_choice=NAMED) == (None, [("weather", PARIS)], "stop")
    assert guide(server) == CITY


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (BARE, (None, [("weather", PARIS)], "tool_calls")),
        ('{"name": "unknown", "parameters": {}}', ('{"name": "unknown", "parameters": {}}', [], "stop")),
        ("It is sunny.", ("It is sunny.", [], "stop")),
    ],
)
async def test_bare_json(
    serve: Serve, model_dir: ModelDirectory, said: str, expected: tuple[str | None, Calls, str]
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.tool_call_parser=llama3_json\n"}))
    assert await ask(server, said) == expected


async def test_form_of_calls_is_read_from_the_template(serve: Serve, model_dir: ModelDirectory) -> None:
    template = "{% if tools %}Call with <tool_call> tags.{% endif %}{{ messages[0].content }}"
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": template}
    server = await serve(model_dir(files))
    assert (await ask(server, TAGGED))[1] == [("weather", PARIS)]


async def test_earlier_calls_are_objects_for_the_template(serve: Serve, model_dir: ModelDirectory) -> None:
    template = "{{ messages[0].tool_calls[0].function.arguments.city }} {{ messages[1].tool_call_id }}"
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": template}
    server = await serve(model_dir(files))
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": PARIS}}
    said = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}
    answer = await chat(server, messages=[said, {"role": "tool", "tool_call_id": "1", "content": "sunny"}])
    assert answer.status == 200
    assert server.scripted.history[-1].prompt == "Paris 1"


async def test_template_is_told_of_defaults_that_are_null(serve: Serve, model_dir: ModelDirectory) -> None:
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": "{{ tools | tojson }}"}
    server = await serve(model_dir(files))
    parameters = {"properties": {"unit": {"type": ["string", "null"], "default": None}}}
    tools = [{"type": "function", "function": {"name": "f", "description": None, "parameters": parameters}}]
    assert (await chat(server, tools=tools, tool_choice="required")).status == 200
    told = json.loads(server.scripted.history[-1].prompt)
    assert told == [{"type": "function", "function": {"name": "f", "parameters": parameters}}]


async def test_earlier_calls_keep_every_digit_of_their_numbers(serve: Serve, model_dir: ModelDirectory) -> None:
    template = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": template}
    server = await serve(model_dir(files))
    arguments = '{"wei": 1234567890123456789012, "of": [-98765432109876543210, 12345678901234567890, 1.5]}'
    call = {"id": "1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    answer = await chat(server, messages=[{"role": "assistant", "tool_calls": [call]}])
    assert (answer.status, server.scripted.history[-1].prompt) == (200, arguments)


@pytest.mark.parametrize("arguments", ['{"city": "Par', "1", "[]", "", None])
async def test_earlier_calls_with_arguments_that_are_no_object_do_not_end_the_conversation(
    serve: Serve, model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture, arguments: str | None
) -> None:
    template = "{% for name, value in messages[0].tool_calls[0].function.arguments.items() %}{{ name }}{% endfor %}end"
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": template}
    server = await serve(model_dir(files))
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    said = {"role": "assistant", "tool_calls": [call]}
    answer = await chat(server, messages=[said, {"role": "tool", "tool_call_id": "1", "content": "invalid JSON"}])
    assert (answer.status, server.scripted.history[-1].prompt) == (200, "end")
    assert ("a past call of 'weather' has arguments that are not a JSON object" in caplog.text) == bool(arguments)


async def test_allowed_tools_are_all_that_the_model_is_told_of(serve: Serve, model_dir: ModelDirectory) -> None:
    template = "{% for tool in tools %}{{ tool.function.name }} {% endfor %}"
    properties = SCRIPTED + "option.chat_template=chat.jinja\noption.tool_call_parser=hermes\n"
    server = await serve(model_dir({"serving.properties": properties, "chat.jinja": template}))
    assert (await ask(server, TAGGED, tool_choice=allowed("auto", "weather")))[1] == [("weather", PARIS)]
    assert server.scripted.history[-1].prompt == "weather "
    assert (await ask(server, LIST, tool_choice=allowed("required", "clock", "weather")))[2] == "tool_calls"
    assert server.scripted.history[-1].prompt == "weather clock "
    await ask(server, BARE, tool_choice=allowed("required", "clock"))
    sent = server.scripted.history[-1].parameters
    assert isinstance(sent, ExtendedParameters)
    assert sent.guided_json is not None
    (schema,) = sent.guided_json["items"]["anyOf"]
    assert schema["properties"]["name"] == {"enum": ["clock"]}


@pytest.mark.parametrize("choice", ["weather", {"function": {"name": "weather"}}])
async def test_named_function_in_the_forms_of_hugging_face(server: RunningServer, choice: object) -> None:
    assert await ask(server, PARIS, tool_choice=choice) == await ask(server, PARIS, tool_choice=NAMED)


async def test_description_that_is_null(server: RunningServer) -> None:
    tools = [{"type": "function", "function": {"name": "clock", "description": None, "parameters": None}}]
    assert (await chat(server, tools=tools)).status == 200


async def test_lmi_form(server: RunningServer) -> None:
    server.scripted.enqueue(Script(TAGGED), Script(TAGGED))
    payload = {"messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS}
    (choice,) = (await server.post("/invocations", payload)).json()["choices"]
    assert (_calls(choice["message"]["tool_calls"]), choice["finish_reason"]) == ([("weather", PARIS)], "eos_token")
    lines = (await server.post("/invocations", payload | {"stream": True})).json_lines()
    assert _assembled([line["choices"][0]["delta"] for line in lines]) == ("Let me see.", [("weather", PARIS)])
    assert lines[-1]["choices"][0]["finish_reason"] == "eos_token"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tool_choice": "required"}, "`tool_choice` requires `tools`. Given: required"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "wether"}}},
            "`tool_choice` must name one of `tools`. Given: 'wether'",
        ),
        (
            {"tools": TOOLS, "tool_choice": "requird"},
            "`tool_choice` must name one of `tools`. Given: 'requird'. Did you mean `required`?",
        ),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function"}},
            "`tool_choice` must be none, auto, required or a named tool.",
        ),
        (
            {"tools": TOOLS, "tool_choice": "required", "response_format": {"type": "json_object"}},
            "`tool_choice` and `response_format` cannot be used together: both constrain the output",
        ),
        (
            {"tools": [{"type": "code"}]},
            "`tools.0` must be of the type function or custom. Given: {'type': 'code'}",
        ),
        ({"tools": [{"type": []}]}, "`tools.0` must be of the type function or custom. Given: {'type': []}"),
        ({"tools": ["weather"]}, "`tools.0` must be an object. Given: 'weather'"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}},
            "`tool_choice` must have `allowed_tools` if and only if its `type` is allowed_tools.",
        ),
        (
            {"tools": TOOLS, "tool_choice": allowed("none", "clock")},
            "`tool_choice.allowed_tools.mode` must be 'auto' or 'required'. Given: 'none'",
        ),
        (
            {"tools": TOOLS, "tool_choice": allowed("auto")},
            "`tool_choice.allowed_tools.tools` must have at least 1 item",
        ),
        (
            {"tools": TOOLS, "tool_choice": allowed("auto", "clock", "wether")},
            "`tool_choice.allowed_tools.tools.1.function.name` must name one of `tools`. Given: 'wether'. Did",
        ),
        ({"tool_choice": allowed("auto", "clock")}, "`tool_choice` requires `tools`. Given: allowed_tools"),
    ],
)
async def test_invalid_request(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    answer = await chat(server, **fields)
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith(message)


@pytest.mark.parametrize("name", SAID)
async def test_format(serve: Serve, model_dir: ModelDirectory, name: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + f"option.tool_call_parser={name}\n"}))
    assert await ask(server, SAID[name]) == ("Let me see.", [("weather", PARIS)], "tool_calls")
    assert set(find_format(name).markers) == set(server.scripted.history[-1].markers)
    assert await ask(server, "It is sunny.") == ("It is sunny.", [], "stop")
    assert (await ask(server, LIST, tool_choice="required"))[1] == [("weather", PARIS), ("clock", "{}")]
    assert server.scripted.history[-1].markers == ()


@pytest.mark.parametrize(
    ("name", "said", "pattern"),
    [
        ("mistral", SAID["mistral"], r"[A-Za-z0-9]{9}"),
        ("kimi_k2", "<|tool_call_begin|>functions.weather:7<|tool_call_argument_begin|>{}", r"functions\.weather:7"),
        ("hermes", TAGGED, r"call_[0-9a-f]{24}"),
    ],
)
async def test_ids_of_calls_are_those_that_the_chat_template_takes(
    serve: Serve, model_dir: ModelDirectory, name: str, said: str, pattern: str
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + f"option.tool_call_parser={name}\n"}))
    server.scripted.enqueue(Script(said), Script(said), Script(LIST))
    message = (await chat(server, tools=TOOLS)).json()["choices"][0]["message"]
    assert re.fullmatch(pattern, message["tool_calls"][0]["id"])
    deltas = [chunk["choices"][0]["delta"] for chunk in events(await chat(server, tools=TOOLS, stream=True))]
    (identified,) = [call["id"] for delta in deltas for call in delta.get("tool_calls", []) if "id" in call]
    assert re.fullmatch(pattern, identified)
    required = (await chat(server, tools=TOOLS, tool_choice="required")).json()["choices"][0]["message"]
    assert re.fullmatch(pattern.replace("7", "0"), required["tool_calls"][0]["id"])


async def test_format_is_not_looked_for(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = "option.tool_call_parser=hermes\noption.enable_auto_tool_choice=false\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED + properties}))
    assert await ask(server, TAGGED) == (TAGGED, [], "stop")
    assert server.scripted.history[-1].prompt.startswith("tool: weather\n")
    assert (await ask(server, PARIS, tool_choice=NAMED))[1] == [("weather", PARIS)]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            "option.tool_call_parser=mistrl\n",
            "option.tool_call_parser must be a known tool-call format. Did you mean `mistral`? Known: apertus, ",
        ),
        (
            "option.enable_auto_tool_choice=maybe\n",
            "option.enable_auto_tool_choice must be true or false. Given: maybe",
        ),
    ],
)
async def test_wrong_option(serve: Serve, model_dir: ModelDirectory, properties: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        await serve(model_dir({"serving.properties": SCRIPTED + properties}))


def test_plugin_for_parsers_has_no_effect(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "option.tool_parser_plugin=mine.py\n"})
    configuration = Configuration.read(directory, {})
    configuration.load(RequestProperties)
    (warning,) = configuration.warnings
    assert "option.tool_parser_plugin has no effect: the server's own parsers extract tool calls" in warning


async def test_unknown_form_of_calls(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    error = (await chat(server, tools=TOOLS)).json()["error"]
    assert (error["param"], error["message"].endswith("set option.tool_call_parser")) == ("tool_choice", True)


async def test_template_without_tools(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "option.chat_template={{ messages[0].content }}\n"
    server = await serve(model_dir({"serving.properties": properties}))
    error = (await chat(server, tools=TOOLS)).json()["error"]
    assert error["message"] == "`tools` are not supported by this model: its chat template does not use them"
    assert (await ask(server, LIST, tool_choice="required"))[1] == [("weather", PARIS), ("clock", "{}")]
    assert (await ask(server, PARIS, tool_choice=NAMED))[1] == [("weather", PARIS)]
    assert guide(server) == CITY

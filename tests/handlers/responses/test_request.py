"""What a request for a response may say, what becomes of it, and what is refused."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.responses.asking import AS_JSON, WEATHER, ask, respond, serve_with

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

JSON = {"type": "json_schema", "name": "answer"}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir)


def item(**members: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": "x"}, members]}


def part(**members: Any) -> dict[str, Any]:
    return item(role="user", content=[{"type": "input_text", "text": "x"}, members])


TYPES = "message, function_call, function_call_output, custom_tool_call, custom_tool_call_output, reasoning"


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"input": None}, "input", "must be a valid list. Given: None"),
        ({"input": []}, "input", "must have at least 1 item"),
        ({"input": 5}, "input", "must be a valid list. Given: 5"),
        (item(type="computer_call", id="cu_1"), "input.1", f"must be an item of one of the types {TYPES}, "),
        (item(role="robot", content="x"), "input.1.role", "must be 'user', 'assistant', 'system' or 'developer'"),
        (item(role="user"), "input.1.content", "is required"),
        (item(type="function_call", name="f"), "input.1.call_id", "is required"),
        (
            item(type="function_call_output", call_id="call_1", output="x"),
            "input.1.call_id",
            "must match an earlier call, in `input` or in the responses that `previous_response_id` continues",
        ),
        (
            part(type="input_file", file_id="file-1"),
            "input.1.content.1.type",
            "must be 'input_text', 'output_text', 'text', 'refusal' or 'input_image'. Given: 'input_file'",
        ),
        (part(type="input_text"), "input.1.content.1", "must have `text`"),
        (
            part(type="input_image", file_id="f"),
            "input.1.content.1",
            "must have `image_url`: this server stores no files",
        ),
        (
            part(type="input_image", image_url="https://host/cat.png", detail="low"),
            "input.1.content.1",
            "is an image, but this model accepts only text on the scripted backend",
        ),
        ({"temperature": 3}, "temperature", "must be less than or equal to 2. Given: 3"),
        ({"max_output_tokens": 0}, "max_output_tokens", "must be greater than or equal to 1. Given: 0"),
        ({"top_logprobs": 21}, "top_logprobs", "must be less than or equal to 20. Given: 21"),
        ({"include": ["everything"]}, "include.0", "must be 'file_search_call.results', "),
        ({"n": 2}, "n", "must be null or 1: a response contains a single answer. Given: 2"),
        (
            {"prompt_logprobs": 1},
            "prompt_logprobs",
            "must be null: a response has no field for its prompt. Given: 1",
        ),
        ({"background": True}, "background", "must be null or False: nothing is generated in the background"),
        ({"conversation": "conv_1"}, "conversation", "must be null: conversations are not stored"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "must be null: prompts are not stored"),
        (
            {"tools": [{"type": "web_search"}]},
            "tools",
            "must have one of the type function or custom: this server has no built-in tools. Given: [{'type': 'web_s",
        ),
        ({"tools": [{"type": "custom"}]}, "tools.0.name", "is required"),
        ({"tools": [{"type": "function"}]}, "tools.0.name", "is required"),
        (
            {"tools": [{"type": "function", "name": "f", "parameters": {"type": "text"}}]},
            "tools.0.parameters",
            "is not a valid JSON schema: its `type` must be object, because arguments have names. Given: 'text'",
        ),
        ({"tool_choice": "required"}, "tool_choice", "requires `tools`. Given: required"),
        ({"tool_choice": {"type": "mcp"}}, "tool_choice.type", "must be 'none', 'auto', 'required', 'function', 'cu"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "must be none, auto, required, or an object that names"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "wether"}},
            "tool_choice",
            "must name one of `tools`. Given: 'wether'. Did you mean `weather`?",
        ),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "name": "`messages`"}},
            "tool_choice",
            "must name one of `tools`. Given: '`messages`'.",
        ),
        (
            {
                "tools": [WEATHER],
                "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]},
            },
            "tool_choice.tools.0.name",
            "must name one of `tools`. Given: 'x'",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n"}}},
            "text.format",
            "must have `schema` if and only if",
        ),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "must be 'text', 'json_object' or 'json_schema'"),
        (
            {"text": {"format": {"type": "json_object"}}, "tools": [WEATHER], "tool_choice": "required"},
            "tool_choice",
            "and `text.format` cannot be used together: both constrain the output",
        ),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "must be 'none', 'minimal', "),
        (
            {"chat_template_kwargs": {"tools": []}},
            "chat_template_kwargs",
            "must contain only variables of the chat template",
        ),
        ({"truncation": "some"}, "truncation", "must be 'disabled' or 'auto'. Given: 'some'"),
        (
            {"truncation": "auto", "truncate_prompt_tokens": 5},
            "truncation",
            "and `truncate_prompt_tokens` cannot be used together",
        ),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options", "requires `stream`: true"),
        (
            {"kv_transfer_params": {"a": 1}},
            "kv_transfer_params",
            "must be null or {}: only the vllm backend supports it",
        ),
        ({"metadata": {"a": 1}}, "metadata.a", "must be a valid string. Given: 1"),
    ],
)
async def test_what_is_refused(server: RunningServer, fields: dict[str, Any], param: str, message: str) -> None:
    answer = await ask(server, **fields) if "input" not in fields else await server.post("/v1/responses", fields)
    error = answer.json()["error"]
    assert (answer.status, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert error["message"].startswith(f"`{param}` {message}"), error["message"]


async def test_schemas_that_are_nested_too_deeply(server: RunningServer) -> None:
    schema: dict[str, Any] = {}
    for _ in range(300):
        schema = {"not": schema}
    for fields in (
        {"tools": [WEATHER | {"parameters": schema}]},
        {"text": {"format": JSON | {"schema": schema}}},
        {"input": [SEARCH | {"action": schema}, {"role": "user", "content": "Hi"}]},
    ):
        answer = await ask(server, **fields)
        (name,) = fields
        assert (answer.status, answer.json()["error"]["param"]) == (400, name)
        assert answer.json()["error"]["message"].startswith(f"`{name}` cannot be taken: ")


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/input_tokens"])
async def test_what_the_chat_template_refuses(serve: Serve, model_dir: ModelDirectory, path: str) -> None:
    server = await serve_with(serve, model_dir, "option.chat_template={{ raise_exception('odd `messages`') }}\n")
    error = (await server.post(path, {"input": "x"})).json()["error"]
    assert (error["message"], error["param"]) == (
        "`input` are refused by the chat template: odd `messages`",
        "input",
    )


async def test_context_is_too_short(server: RunningServer) -> None:
    for fields, field in ({"max_output_tokens": 5000}, "max_output_tokens"), ({"input": "word " * 3000}, "input"):
        answer = await server.post("/v1/responses", {"input": "x"} | fields)
        error = answer.json()["error"]
        assert (answer.status, error["code"]) == (400, "context_length_exceeded")
        assert error["message"].startswith("This model's maximum context length is 2048 tokens. However, ")
        assert f"`{field}`" in error["message"]


async def test_unknown_model(server: RunningServer) -> None:
    answer = await ask(server, model="other")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "model_not_found")


async def test_adapter_by_the_name_of_the_model(serve: Serve, model_dir: ModelDirectory) -> None:
    code = "from lmi_core.formatter import output_formatter\n\n\n@output_formatter\ndef french(output):\n"
    code += "    return 'oui' if output.finished else ''\n"
    server = await serve(model_dir({"serving.properties": SCRIPTED, "adapters/french/model.py": code}))
    assert (await ask(server, model="french")).body == b"oui"
    assert (await ask(server, model="model")).json()["model"] == "model"


async def test_members_that_repeat_the_request(server: RunningServer) -> None:
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 20,
        "max_tool_calls": 3,
        "metadata": {"topic": "demo"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "key",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "me",
        "temperature": 0.5,
        "text": {
            "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True},
            "verbosity": "low",
        },
        "tool_choice": "none",
        "top_logprobs": 3,
        "top_p": 0.9,
        "truncation": "auto",
        "user": "somebody",
        "store": False,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
    }
    response = await respond(server, **asked, tools=[WEATHER], service_tier="flex")
    assert {name: response[name] for name in asked} == asked
    assert response["tools"] == [WEATHER | {"description": None, "strict": None}]
    assert (response["model"], response["service_tier"], response["background"]) == ("model", "default", False)


async def test_parameters(server: RunningServer) -> None:
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 1,
        "stop": "x",
        "max_output_tokens": 9,
        "min_tokens": 2,
    }
    await respond(server, **given, logit_bias={"1": 2}, repetition_penalty=1.5)
    found = parameters(server)
    assert (found.temperature, found.top_p, found.top_k, found.seed) == (0.5, 0.9, 5, 1)
    assert (found.stop_sequences, found.max_new_tokens, found.min_length) == (["x"], 9, 2)
    assert (found.logit_bias, found.repetition_penalty, found.do_sample) == ({"1": 2}, 1.5, True)
    await respond(server, max_tokens=4, temperature=0)
    assert (parameters(server).max_new_tokens, parameters(server).do_sample) == (4, False)
    await respond(server)
    assert parameters(server).max_new_tokens == 2048 - 5


@pytest.mark.parametrize(
    ("text", "guide"),
    [
        ({"type": "json_schema", "name": "answer", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "text"}, None),
    ],
)
async def test_structured_output(server: RunningServer, text: dict[str, Any], guide: object) -> None:
    response = await respond(server, text={"format": text})
    assert parameters(server).guided_json == guide
    assert response["text"] == {"format": text, "verbosity": "medium"}


async def test_structured_output_as_vllm_has_it(server: RunningServer) -> None:
    await respond(server, structured_outputs={"regex": "[a-z]+"})
    assert parameters(server).guided_regex == "[a-z]+"


async def test_names_for_the_chat_template(server: RunningServer) -> None:
    server.scripted.tokenizer.template = "{{ reasoning_effort }} {{ enable_thinking }} {{ mood }}"
    await respond(server, reasoning={"effort": "none"}, chat_template_kwargs={"mood": "good"})
    assert server.scripted.history[-1].prompt == "none False good"


async def test_hints_and_unknown_fields(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir)
    hints = {"service_tier": "auto", "prompt_cache_retention": "24h", "include": ["reasoning.encrypted_content"]}
    answer = await ask(server, **hints, context_management=[{"type": "compaction"}], zzz=1)
    assert answer.status == 200
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "context_management, zzz"
    empty = {"background": False, "conversation": None, "prompt": None, "n": 1, "previous_response_id": None}
    assert "X-Lmi-Ignored-Parameters" not in (await ask(server, **empty)).headers


AGENTS_TOOLS = [
    {"type": "web_search", "external_web_access": False},
    WEATHER,
    {"type": "image_generation"},
]


async def test_tools_of_other_types_beside_functions(server: RunningServer) -> None:
    server.scripted.tokenizer.template = AS_JSON + "<tool_call>"
    answer = await ask(server, tools=AGENTS_TOOLS, tool_choice="auto")
    assert answer.status == 200, answer.body
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "tools.web_search, tools.image_generation"
    assert [tool["name"] for tool in answer.json()["tools"]] == ["weather"]
    assert server.scripted.history[-1].prompt.count("tool: ") == 1
    error = (await ask(server, tools=[*AGENTS_TOOLS, {"type": "function"}])).json()["error"]
    assert (error["param"], error["message"]) == ("tools.3.name", "`tools.3.name` is required")


async def test_strict_parameters_refuse_tools_of_other_types(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.strict_parameters=true\n")
    error = (await ask(server, tools=AGENTS_TOOLS)).json()["error"]
    assert error["message"].startswith(
        "`tools.0.type` must be function or custom: this server has no built-in tools. Given: 'web_sea"
    )
    added = {"type": "additional_tools", "tools": [WEATHER, {"type": "web_search"}]}
    error = (await ask(server, [{"role": "user", "content": "Hi"}, added], tools=[WEATHER])).json()["error"]
    assert error["param"] == "input.1.tools.1.type"


SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "searching",
    "action": {"query": "weather", "type": "search"},
}


async def test_calls_of_tools_that_another_server_ran(server: RunningServer) -> None:
    search_after_all = {"type": "mcp_list_tools", "server_label": "x", "tools": []}
    answer = await ask(server, [{"role": "user", "content": "Hi"}, SEARCH, search_after_all, SEARCH])
    assert answer.headers["X-Lmi-Ignored-Parameters"] == "input.web_search_call, input.mcp_list_tools"
    listed = (await server.get(f"/v1/responses/{answer.json()['id']}/input_items?order=asc")).json()["data"]
    assert listed[1] == SEARCH
    assert listed[2].items() >= search_after_all.items()
    again = await ask(server, "And now?", previous_response_id=answer.json()["id"])
    assert again.status == 200, again.body


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (SEARCH, "web_search_call belongs to a tool that another server ran"),
        (
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            "only the server that wrote reasoning.encrypted_content can read it",
        ),
    ],
)
async def test_strict_parameters_refuse_items_without_effect(
    serve: Serve, model_dir: ModelDirectory, given: dict[str, Any], reason: str
) -> None:
    server = await serve_with(serve, model_dir, "option.strict_parameters=true\n")
    error = (await ask(server, [{"role": "user", "content": "Hi"}, given])).json()["error"]
    assert error["message"].startswith(f"`input.1` has no effect: {reason}")


async def test_strict_parameters(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.strict_parameters=true\n")
    answer = await ask(server, instruction="x")
    assert answer.json()["error"]["message"] == (
        "`instruction` is not a field of this request. Did you mean `instructions`?"
    )


async def test_name_of_the_request(server: RunningServer) -> None:
    answer = await ask(server, request_id="mine")
    assert answer.headers["x-request-id"] == "mine"
    assert "mine" not in answer.json()["id"]  # whoever knows the id may read the response

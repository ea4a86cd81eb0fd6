"""Fields that OpenAI's dialects ignore silently, refuse by name, or report as unknown."""

import json
from typing import Any

import pytest

from lmi_handlers.fields.openai_tolerance import HINTS, REFUSED
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, parameters, running_server
from tests.handlers.openai.chats import BODIES, MESSAGES, TEXT, ask, chat, events
from tests.module_server import module_server

HEADER = "X-Lmi-Ignored-Parameters"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CONTENT = {"type": "json_schema", "json_schema": SCHEMA | {"default": None}}
TAG = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<f="],
        "tags": [{"type": "tag", "begin": "<f=a>", "content": CONTENT, "end": "</f>"}],
    },
}
OLDER_TAG = {
    "structures": [{"begin": "<f=a>", "schema": SCHEMA | {"default": None}, "end": "</f>"}],
    "triggers": ["<f="],
}
FUNCTION = {"name": "f", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"name": "f", "arguments": "{}"}
CALLS = {"function_call": CALL, "tool_calls": [{"type": "function", "function": CALL}]}
STRICT = "option.strict_parameters=true\n"


pytestmark = pytest.mark.asyncio(loop_scope="module")


server = module_server(SCRIPTED)


@pytest.mark.parametrize("path", BODIES)
async def test_hints_are_taken_without_a_word(server: RunningServer, path: str) -> None:
    given: dict[str, Any] = dict.fromkeys(HINTS, "any")
    given |= {"store": True, "metadata": {"a": "b"}, "prediction": {"type": "content", "content": "x"}, "priority": 3}
    answer = await ask(server, path, **given)
    assert (answer.status, answer.headers.get(HEADER)) == (200, None)


@pytest.mark.parametrize("path", BODIES)
async def test_neutral_values(server: RunningServer, path: str) -> None:
    neutral: dict[str, Any] = {name: refused.neutral[-1] for name, refused in REFUSED.items() if refused.neutral}
    answer = await ask(server, path, **dict.fromkeys(REFUSED), nobody=None)
    assert (answer.status, answer.headers.get(HEADER)) == (200, None)
    answer = await ask(server, path, **neutral)
    assert (answer.status, answer.headers.get(HEADER)) == (200, None)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"modalities": ["text", "audio"]},
            "`modalities` must be null or [] or ['text']: answers are always text. Given: [",
        ),
        ({"audio": {"voice": "alloy"}}, "`audio` must be null: answers are always text. Given: {'voice': 'alloy'}"),
        ({"thinking_token_budget": 100}, "`thinking_token_budget` requires option.reasoning_parser, the format in "),
        ({"thinking_token_budget": -2}, "`thinking_token_budget` must be greater than or equal to -1"),
        ({"allowed_token_ids": []}, "`allowed_token_ids` must "),
        ({"logprob_token_ids": [1]}, "`logprob_token_ids` requires `logprobs`"),
        ({"logits_processors": ["os.system"]}, "`logits_processors` must be null or []: requests cannot bring code"),
        (
            {"vllm_xargs": {"a": 1}},
            "`vllm_xargs` must be null or {}: only the vllm backend supports it, and this model ",
        ),
        ({"kv_transfer_params": {"a": 1}}, "`kv_transfer_params` must be null "),
        ({"ec_transfer_params": {"a": 1}}, "`ec_transfer_params` must be null "),
        ({"mm_processor_kwargs": {"a": 1}}, "`mm_processor_kwargs` must be null or {}: only "),
        ({"media_io_kwargs": {"image": {"a": 1}}}, "`media_io_kwargs` must be null or {}: only "),
        ({"repetition_detection": {"max_pattern_size": 2}}, "`repetition_detection` must have a `min_count` of at le"),
        (
            {"repetition_detection": {"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}},
            "`repetition_detection` must have a `min_pattern_size` that is at most `max_pattern_size`, 2. Given: 3",
        ),
        ({"cache_salt": "a/b"}, "`cache_salt` must not contain @, /, \\ or NUL. Given: 'a/b'"),
        ({"cache_salt": ""}, "`cache_salt` must have at least 1 character"),
        ({"request_id": "a\nb"}, "`request_id` must be printable ASCII. Given: "),
        ({"adapter_name": "a"}, "`adapter_name` is not a field of this request: name an adapter in "),
    ],
)
async def test_what_would_change_the_answer_is_refused(
    server: RunningServer, path: str, fields: dict[str, Any], message: str
) -> None:
    before = len(server.scripted.history)
    answer = await ask(server, path, **fields)
    assert answer.status == (424 if path == "/invocations" else 400)
    error = answer.json()["error"]
    assert (error if path == "/invocations" else error["message"]).startswith(message)
    assert len(server.scripted.history) == before


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
async def test_unknown_fields_are_listed(server: RunningServer, path: str, stream: bool) -> None:
    answer = await ask(server, path, max_token=5, web_search_options={}, temperature=0, stream=stream)
    assert (answer.status, answer.headers[HEADER]) == (200, "max_token, web_search_options")


@pytest.mark.parametrize("path", BODIES)
async def test_strict_parameters(model_dir: ModelDirectory, path: str) -> None:
    async with running_server(model_dir({"serving.properties": SCRIPTED + STRICT})) as server:
        assert (await ask(server, path, store=True, audio=None)).status == 200
        unknown = await ask(server, path, max_token=5)
    assert b"`max_token` is not a field of this request. Did you mean `max_tokens`?" in unknown.body
    assert unknown.status != 200


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "user", "content": "Hi", "cache_control": None, "name": "me"},
    ],
)
async def test_further_members_of_messages(server: RunningServer, message: dict[str, Any]) -> None:
    assert (await chat(server, messages=[message])).status == 200
    assert server.scripted.history[-1].prompt == "user: Hi\nassistant:"


async def test_an_assistants_message_is_taken_back(server: RunningServer) -> None:
    call = {"index": 0, "type": "function", "function": {"name": "f", "arguments": {"a": 1}, "strict": None}}
    refusal = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "tool_calls": [call]}
    assert (await chat(server, messages=[refusal, *MESSAGES], stream_options=None)).status == 200
    assert server.scripted.history[-1].prompt.startswith("assistant: No.\n")


async def test_further_members_of_tools(server: RunningServer) -> None:
    function = {"name": "f", "description": None, "parameters": SCHEMA, "strict": None, "defer_loading": True}
    tool = {"type": "function", "function": function, "cache_control": {"type": "ephemeral"}}
    choice = {"type": "function", "function": {"name": "f", "further": 1}, "further": 1}
    assert (await chat(server, tools=[tool], tool_choice=choice)).status == 200
    assert parameters(server).guided_json == SCHEMA


async def test_further_members_of_other_objects(server: RunningServer) -> None:
    options = {"include_usage": True, "include_obfuscation": False}
    schema = {"name": "a", "schema": SCHEMA, "strict": True, "examples": []}
    response_format = {"type": "json_schema", "json_schema": schema, "further": 1}
    answer = await chat(server, stream=True, stream_options=options, response_format=response_format)
    assert answer.status == 200
    assert parameters(server).guided_json == SCHEMA


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize(
    ("fields", "parameter", "value"),
    [
        ({"structured_outputs": {"json": SCHEMA}}, "guided_json", SCHEMA),
        ({"structured_outputs": {"json": '{"type": "object"}'}}, "guided_json", {"type": "object"}),
        ({"structured_outputs": {"json_object": True}}, "guided_json", {"type": "object"}),
        ({"structured_outputs": {"choice": ["a", "b"], "whitespace_pattern": None}}, "guided_choice", ["a", "b"]),
        ({"structured_outputs": {"regex": "a+"}}, "guided_regex", "a+"),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, "guided_grammar", 'root ::= "a"'),
        ({"guided_json": '{"type": "object"}'}, "guided_json", {"type": "object"}),
        ({"response_format": TAG}, "guided_structural_tag", TAG),
        ({"response_format": {"type": "structural_tag", **OLDER_TAG}}, "guided_structural_tag", TAG),
        ({"structured_outputs": {"structural_tag": json.dumps(TAG)}}, "guided_structural_tag", TAG),
        ({"structural_tag": json.dumps(OLDER_TAG)}, "guided_structural_tag", TAG),
        ({"response_format": {"type": "json_object"}}, "guided_json", {"type": "object"}),
        ({"response_format": {"type": "json_object", "value": SCHEMA}}, "guided_json", SCHEMA),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, "guided_json", SCHEMA),
        (
            {"response_format": {"type": "json_object", "schema": None, "value": None}},
            "guided_json",
            {"type": "object"},
        ),
        ({"response_format": {"type": "json", "value": SCHEMA}}, "guided_json", SCHEMA),
        ({"response_format": {"type": "json", "value": json.dumps(SCHEMA)}}, "guided_json", SCHEMA),
        ({"response_format": {"type": "json_schema", "value": SCHEMA}}, "guided_json", SCHEMA),
        ({"response_format": {"type": "json_schema", "value": {"name": "a", "schema": SCHEMA}}}, "guided_json", SCHEMA),
        ({"response_format": {"type": "regex", "value": "a+"}}, "guided_regex", "a+"),
        ({"use_beam_search": True, "n": 2, "best_of": 3, "length_penalty": 0.5}, "num_beams", 3),
        ({"use_beam_search": True, "n": 2}, "num_beams", 2),
        ({"truncate_prompt_tokens": -1, "truncation_side": "left"}, "truncate", 2047),
        ({"truncation_side": "right"}, "truncate", None),
    ],
)
async def test_vllms_fields(
    server: RunningServer, path: str, fields: dict[str, Any], parameter: str, value: object
) -> None:
    answer = await ask(server, path, **fields)
    assert (answer.status, answer.headers.get(HEADER)) == (200, None)
    assert getattr(parameters(server), parameter) == value
    assert len(answer.json()["choices"]) == fields.get("n", 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "`structured_outputs.choice` and `structured_outputs",
        ),
        (
            {"guided_json": {}, "response_format": {"type": "json_object"}},
            "`response_format` and `guided_json` cannot be used",
        ),
        (
            {"structured_outputs": {"structural_tag": "{}"}},
            "`structured_outputs.structural_tag` must have `format`, or `",
        ),
        ({"structural_tag": "{"}, "`structural_tag` must be a structural tag, as an object or as JSON text: "),
        ({"structural_tag": {"type": "text", "format": {}}}, '`structural_tag` must have the `type` "structural_tag"'),
        ({"response_format": {"type": "json"}}, "`response_format` must have a JSON schema as `value`. Giv"),
        (
            {"response_format": {"type": "json", "value": "[1]"}},
            "`response_format` must have a JSON schema, an object, as `value`. Given",
        ),
        (
            {"response_format": {"type": "json", "value": "{"}},
            "`response_format` must be a JSON schema, as an object or as JSON text: ",
        ),
        (
            {"response_format": {"type": "json_object", "value": SCHEMA, "schema": SCHEMA}},
            "`response_format` must have `value` or its other name `schema`, but not both. G",
        ),
        (
            {"response_format": {"type": "regex"}},
            "`response_format` must have a regular expression as `value` and no `schema`",
        ),
        (
            {"response_format": {"type": "regex", "value": {}}},
            "`response_format` must have a regular expression as `value` and no `schema`",
        ),
        (
            {"response_format": {"type": "text", "value": "a+"}},
            "`response_format` must have neither `value` nor `schema` if its `type` is text",
        ),
        (
            {"response_format": {"type": "structural_tag"}},
            "`response_format` must have `format`, or `structures` and `",
        ),
        (
            {"response_format": {"type": "structural_tag", **OLDER_TAG, "triggers": []}},
            "`response_format` must have a v",
        ),
        ({"response_format": OLDER_TAG}, "`response_format.type` is required"),
        ({"structural_tag": TAG, "guided_regex": "a"}, "`guided_regex` and `structural_tag` cannot be used together"),
        ({"guided_json": "{"}, "`guided_json` must be a JSON schema, as an object or as JSON text: "),
        ({"truncation_side": "middle"}, "`truncation_side` must be 'left' or 'right'"),
        (
            {"best_of": 2, "stream": True},
            "`best_of` must be at most 1, the number of sequences in the stream. Given: 2",
        ),
        ({"continue_final_message": True}, "`continue_final_message` requires a last message whose role is"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "`continue_final_message` and `add_"),
        (
            {"chat_template_kwargs": {"chat_template": "x"}},
            "`chat_template_kwargs` must contain only variables of the chat template, and `",
        ),
        ({"reasoning_effort": "some"}, "`reasoning_effort` must be 'none', 'minimal', 'low', 'medium', 'high', "),
        ({"echo": 1}, "`echo` must be a valid boolean"),
        (
            {"functions": [FUNCTION], "tools": [TOOL]},
            "`functions` and `tools` cannot be used together: `functions` is the older",
        ),
        (
            {"functions": [FUNCTION], "tool_choice": "auto"},
            "`tool_choice` requires `tools`: with `functions` use `function_call`",
        ),
        (
            {"tools": [TOOL], "function_call": "none"},
            "`function_call` requires `functions`: with `tools` use `tool_choice`",
        ),
        (
            {"functions": [FUNCTION], "function_call": "required"},
            "`function_call` must be none, auto or an object with",
        ),
        ({"function_call": {"name": "f"}}, "`function_call` requires `functions`. Given: function"),
        (
            {"functions": [FUNCTION], "function_call": {"name": "g"}},
            "`function_call` must name one of `functions`. Giv",
        ),
        ({"functions": [FUNCTION]}, "`function_call` cannot be auto: the chat template does not show how this model"),
        (
            {"functions": [FUNCTION], "function_call": {"name": "f"}, "guided_regex": "a"},
            "`function_call` and `guided_regex` cannot be used together",
        ),
        (
            {"messages": [{"role": "assistant", **CALLS}]},
            "`messages.0` must have `tool_calls` or its older form `func",
        ),
        (
            {"chat_template": "{{ 1 }}"},
            "`chat_template` is not allowed in requests, because it is a program: set option",
        ),
    ],
)
async def test_wrong_values_of_known_fields(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    answer = await chat(server, **fields)
    assert (answer.status, answer.json()["error"]["message"][: len(message)]) == (400, message)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_usage_in_each_chunk(server: RunningServer, path: str) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(await ask(server, path, stream=True, max_tokens=3, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == ([0, 1, 2, 3, 3, 3] if "chat" in path else [1, 2, 3, 3])
    options = {"continuous_usage_stats": True}
    chunks = events(await ask(server, path, stream=True, max_tokens=3, stream_options=options))
    assert all("usage" not in chunk for chunk in chunks)


async def test_best_of_in_a_chat(server: RunningServer) -> None:
    """The likeliest of them is the answer, and all count."""
    answer = (await chat(server, best_of=3)).json()
    assert [choice["message"]["content"] for choice in answer["choices"]] == [TEXT]
    assert answer["usage"]["completion_tokens"] == 3 * 7
    assert len((await chat(server, best_of=3, n=2)).json()["choices"]) == 2


@pytest.mark.parametrize(("older", "newer", "counts"), [(2, 2, 2), (5, 3, 3), (3, 5, 5), (None, 3, 3), (3, None, 3)])
async def test_of_both_names_of_the_limit_the_newer_counts(
    server: RunningServer, older: int | None, newer: int | None, counts: int
) -> None:
    answer = await chat(server, max_tokens=older, max_completion_tokens=newer)
    assert (answer.status, answer.json()["usage"]["completion_tokens"]) == (200, counts)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("options", [None, {}, {"include_usage": None}, {"continuous_usage_stats": None}])
async def test_stream_options_that_ask_for_nothing(server: RunningServer, path: str, options: object) -> None:
    chunks = events(await ask(server, path, stream=True, max_tokens=3, stream_options=options))
    assert chunks
    assert all("usage" not in chunk for chunk in chunks)


async def test_the_templates_names(model_dir: ModelDirectory) -> None:
    template = "{{ documents[0].text }} {{ reasoning_effort }} {{ enable_thinking }} {{ a }}"
    async with running_server(model_dir({"serving.properties": f"{SCRIPTED}option.chat_template={template}\n"})) as one:
        await chat(one, documents=[{"text": "T"}], reasoning_effort="low", chat_template_kwargs={"a": "A"})
        assert one.scripted.history[-1].prompt == "T low True A"
        await chat(one, documents=[{"text": "T"}], reasoning_effort="none", chat_template_kwargs={"enable_thinking": 1})
        assert one.scripted.history[-1].prompt == "T none 1 "


async def test_prompt_that_begins_no_answer(server: RunningServer) -> None:
    await chat(server, messages=[{"role": "user", "content": "Hi"}], add_generation_prompt=False)
    assert server.scripted.history[-1].prompt == "user: Hi\n"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_as_ids(server: RunningServer, path: str, stream: bool) -> None:
    logprobs: object = True if "chat" in path else 1
    answer = await ask(server, path, logprobs=logprobs, return_tokens_as_token_ids=True, max_tokens=1, stream=stream)
    token_id = server.scripted.tokenizer.id("Deep")
    assert f'"token_id:{token_id}"'.encode() in answer.body
    assert b'"Deep"' not in answer.body.replace(b'"text":"Deep"', b"").replace(b'"content":"Deep"', b"")


async def test_special_tokens(model_dir: ModelDirectory) -> None:
    """The tokenizer adds special tokens as the request asks."""
    async with running_server(model_dir({"serving.properties": SCRIPTED})) as one:
        asked: list[bool] = []
        encode = one.scripted.tokenizer.encode

        def recording(text: str, add_special_tokens: bool = True) -> list[int]:
            asked.append(add_special_tokens)
            found: list[int] = encode(text)
            return found

        one.scripted.tokenizer.encode = recording
        for path, fields in [
            ("/v1/chat/completions", {}),
            ("/v1/chat/completions", {"add_special_tokens": True}),
            ("/v1/completions", {}),
            ("/v1/completions", {"add_special_tokens": False}),
        ]:
            await ask(one, path, **fields)
        assert asked[::2] == [False, True, True, False]  # between them, the script is read

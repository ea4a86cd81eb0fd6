"""OpenAI's chat completions over a real socket."""

from typing import Any

import pytest

from lmi_core.generation.parameters import ExtendedParameters
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters
from tests.handlers.openai.chats import (
    EMPTY_ANSWER,
    EMPTY_CHOICE,
    EMPTY_MESSAGE,
    EMPTY_PROMPT,
    MESSAGES,
    PATH,
    PROMPT,
    TEXT,
    USAGE,
    WORDS,
    chat,
    events,
    serve_with,
)


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def test_whole_answer(server: RunningServer) -> None:
    answer = await chat(server, headers={"x-request-id": "mine"})
    assert (answer.status, answer.content_type) == (200, "application/json")
    content = answer.json()
    assert content.pop("created") >= server.model.created
    message = EMPTY_MESSAGE | {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    assert content == {
        **EMPTY_ANSWER,
        **EMPTY_PROMPT,
        "prompt_text": None,
        "id": "chatcmpl-mine",
        "object": "chat.completion",
        "model": "model",
        "system_fingerprint": server.model.fingerprint,
        "choices": [EMPTY_CHOICE | choice],
        "usage": USAGE,
    }


async def test_prompt_is_rendered_by_the_chat_template(server: RunningServer) -> None:
    await chat(server)
    assert server.scripted.history[-1].prompt == PROMPT


async def test_defaults(server: RunningServer) -> None:
    await chat(server)
    expected = ExtendedParameters(do_sample=True, temperature=1.0, max_new_tokens=2048 - 9)
    assert parameters(server) == expected


async def test_every_sampling_field_reaches_the_backend(server: RunningServer) -> None:
    await chat(
        server,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        logit_bias={"3": -100},
        max_completion_tokens=5,
        n=2,
        seed=7,
        stop=["x", "y"],
        temperature=0.25,
        top_p=0.75,
        ignore_eos=True,
        logprobs=True,
        top_logprobs=3,
        min_tokens=1,
        top_k=4,
    )
    assert parameters(server) == ExtendedParameters(
        do_sample=True,
        frequency_penalty=0.5,
        presence_penalty=-0.5,
        logit_bias={"3": -100},
        max_new_tokens=5,
        n=2,
        seed=7,
        stop_sequences=["x", "y"],
        temperature=0.25,
        top_p=0.75,
        ignore_eos_token=True,
        logprobs=3,
        min_length=1,
        top_k=4,
    )


async def test_temperature_0_is_greedy(server: RunningServer) -> None:
    await chat(server, temperature=0)
    assert parameters(server).do_sample is False


async def test_negative_seed(server: RunningServer) -> None:
    await chat(server, seed=-1)
    assert parameters(server).seed == 2**63 - 1


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
async def test_finish_reason_length(server: RunningServer, field: str) -> None:
    limit: dict[str, Any] = {field: 2}
    (choice,) = (await chat(server, **limit)).json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Deep Learning", "length")


async def test_stop_as_a_string(server: RunningServer) -> None:
    (choice,) = (await chat(server, stop=" is a")).json()["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Deep Learning", "stop")


async def test_choices(server: RunningServer) -> None:
    answer = (await chat(server, n=3)).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert answer["usage"] == {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}


async def test_log_probabilities(server: RunningServer) -> None:
    server.scripted.enqueue(Script("Grüße"))
    (choice,) = (await chat(server, logprobs=True, top_logprobs=2)).json()["choices"]
    (entry,) = choice["logprobs"]["content"]
    likeliest = entry.pop("top_logprobs")
    assert entry == {"token": "Grüße", "logprob": -0.25, "bytes": list("Grüße".encode())}
    assert [top["logprob"] for top in likeliest] == [-0.25, -1.25]
    assert likeliest[0] == entry


async def test_log_probabilities_without_the_likeliest(server: RunningServer) -> None:
    (choice,) = (await chat(server, logprobs=True)).json()["choices"]
    assert [entry["token"] for entry in choice["logprobs"]["content"]] == WORDS
    assert all(entry["top_logprobs"] == [] for entry in choice["logprobs"]["content"])


async def test_stream(server: RunningServer) -> None:
    begin, *middle, end = events(await chat(server, stream=True))
    assert begin["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    ]
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [{"content": word} for word in WORDS]
    last = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": "stop"}
    assert end["choices"] == [last | {"stop_reason": None, "token_ids": None}]
    assert {begin.pop(name) for name in ("prompt_token_ids", "prompt_text")} == {None}
    assert all(
        set(chunk) == {"id", "object", "created", "model", "system_fingerprint", "choices"}
        for chunk in [begin, *middle, end]
    )
    assert len({(chunk["id"], chunk["object"], chunk["created"]) for chunk in [begin, *middle, end]}) == 1


async def test_tokens_of_a_step_share_an_event(server: RunningServer) -> None:
    """Tokens that a stop sequence held back come in one step."""
    _, *middle, _ = events(await chat(server, stream=True, stop=[" really cool fish"]))
    texts = [*WORDS[:4], "".join(WORDS[4:])]
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [{"content": text} for text in texts]


async def test_each_token_of_a_step_has_an_event_for_its_log_probability(server: RunningServer) -> None:
    stop = [" really cool fish", " field"]
    _, *middle, end = events(await chat(server, stream=True, logprobs=True, stop=stop))
    assert [chunk["choices"][0]["delta"] for chunk in middle] == [{"content": word} for word in WORDS[:6]] + [{}]
    entries = [chunk["choices"][0]["logprobs"]["content"] for chunk in middle]
    assert [[entry["token"] for entry in each] for each in entries] == [[word] for word in WORDS]
    last = {"index": 0, "delta": {"content": ""}, "logprobs": None, "finish_reason": "stop"}
    assert end["choices"] == [last | {"stop_reason": " field", "token_ids": None}]


async def test_each_event_is_a_chunk_of_its_own(server: RunningServer) -> None:
    async with server.client.post(PATH, json={"messages": MESSAGES, "stream": True}) as response:
        chunks = [chunk async for chunk, _ in response.content.iter_chunks()]
    assert len(chunks) == len(WORDS) + 3
    assert all(chunk.startswith(b"data: ") and chunk.count(b"\n\n") == 1 for chunk in chunks)


async def test_each_event_is_sent_when_its_token_is_there(server: RunningServer) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with server.client.post(PATH, json={"messages": MESSAGES, "stream": True}) as response:
        received = [await response.content.readuntil(b"\n\n") for _ in range(3)]
        assert b'"content":" two"' in received[-1]
        assert not script.closed.is_set()
    await script.closed.wait()


async def test_stream_of_several_choices(server: RunningServer) -> None:
    chunks = events(await chat(server, stream=True, n=2))
    for index in (0, 1):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content", "") for choice in own) == TEXT
        assert [choice["finish_reason"] for choice in own] == [None] * 8 + ["stop"]


async def test_stream_in_tgis_form(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.tgi_compat=true\n")
    choices = [chunk["choices"][0] for chunk in events(await chat(server, stream=True))]
    assert [choice["delta"] for choice in choices] == [{"role": "assistant", "content": word} for word in WORDS]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(WORDS) - 1) + ["stop"]
    server.scripted.enqueue(Script(tokens=("one", "")))
    _, last = [chunk["choices"][0] for chunk in events(await chat(server, stream=True))]
    assert (last["delta"], last["finish_reason"]) == ({"role": "assistant", "content": ""}, "stop")
    first, *_ = events(await chat(server, stream=True, return_token_ids=True))
    assert len(first["prompt_token_ids"]) == USAGE["prompt_tokens"]


async def test_usage_at_the_end_of_a_stream(server: RunningServer) -> None:
    *chunks, last = events(await chat(server, stream=True, stream_options={"include_usage": True}))
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]) == ([], USAGE)


async def test_log_probabilities_of_a_stream(server: RunningServer) -> None:
    chunks = events(await chat(server, stream=True, logprobs=True, top_logprobs=1, stop="cool"))
    entries = [entry for chunk in chunks for entry in (chunk["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert [entry["token"] for entry in entries] == WORDS[:6]
    assert all(len(entry["top_logprobs"]) == 1 for entry in entries)


async def test_failure_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    answer = await chat(server, stream=True)
    assert answer.status == 200
    *_, last = events(answer)
    error = {"message": "the engine fell over", "type": "server_error", "param": None, "code": "generation_failed"}
    assert last == {"error": error}


async def test_failure_within_a_whole_answer(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    answer = await chat(server)
    assert (answer.status, answer.json()["error"]["type"]) == (500, "server_error")


@pytest.mark.parametrize(
    ("response_format", "guide"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}, {"type": "integer"}),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, {"type": "object"}),
    ],
)
async def test_response_format(server: RunningServer, response_format: object, guide: object) -> None:
    assert (await chat(server, response_format=response_format)).status == 200
    assert parameters(server).guided_json == guide


@pytest.mark.parametrize(
    "fields",
    [{"guided_json": {"type": "integer"}}, {"guided_choice": ["a"]}, {"guided_regex": "a"}, {"guided_grammar": "a"}],
)
async def test_guided(server: RunningServer, fields: dict[str, Any]) -> None:
    await chat(server, **fields)
    (name,) = fields
    assert getattr(parameters(server), name) == fields[name]


@pytest.mark.parametrize(("field", "parameter"), [("regex", "guided_regex"), ("ebnf", "guided_grammar")])
async def test_guided_by_sglangs_names(server: RunningServer, field: str, parameter: str) -> None:
    fields: dict[str, Any] = {field: "a"}
    await chat(server, **fields)
    assert getattr(parameters(server), parameter) == "a"


async def test_user_is_in_the_log(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "lmi_handlers.fields.passed")
    await chat(server, headers={"x-request-id": "mine"}, user="bob\n")
    assert "request mine was sent by user 'bob\\n'" in caplog.messages


async def test_parts_of_text(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    await chat(server, messages=[{"role": "user", "content": parts}])
    assert server.scripted.history[-1].prompt == "user: one\ntwo\nassistant:"


@pytest.mark.parametrize("content", [["one", "two"], ["one", {"type": "text", "text": "two"}]])
async def test_texts_without_parts(server: RunningServer, content: list[Any]) -> None:
    await chat(server, messages=[{"role": "user", "content": content}])
    assert server.scripted.history[-1].prompt == "user: one\ntwo\nassistant:"


@pytest.mark.parametrize("result", [{"role": "tool", "content": None}, {"role": "function", "name": "clock"}])
async def test_result_of_a_function_that_returns_nothing(server: RunningServer, result: dict[str, Any]) -> None:
    call = {"id": "1", "type": None, "function": {"name": "clock", "arguments": "{}"}}
    past: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [call]},
        result,
    ]
    answer = await chat(server, messages=past)
    assert answer.status == 200, answer.body
    assert server.scripted.history[-1].prompt == "user: Hi\nassistant: \ntool: \nassistant:"


async def test_tool_without_a_type(server: RunningServer) -> None:
    server.scripted.tokenizer.template = (
        "{% for tool in tools %}{{ tool.type }} {{ tool.function.name }}{% endfor %}<tool_call>"
    )
    assert (await chat(server, tools=[{"function": {"name": "clock"}}])).status == 200
    assert server.scripted.history[-1].prompt == "function clock<tool_call>"


async def test_as_many_tokens_as_fit(server: RunningServer) -> None:
    await chat(server, max_tokens=-1)
    assert parameters(server).max_new_tokens == 2048 - 9


async def test_developer_is_the_system_where_the_template_knows_none(server: RunningServer) -> None:
    await chat(server, messages=[{"role": "developer", "content": "Be kind."}])
    assert server.scripted.history[-1].prompt == "system: Be kind.\nassistant:"


async def test_template_from_the_model_directory(serve: Serve, model_dir: ModelDirectory) -> None:
    template = "{{ mood }}{% for message in messages %}[{{ message.role }}]{% endfor %}"
    files = {"serving.properties": SCRIPTED + "option.chat_template=chat.jinja\n", "chat.jinja": template}
    server = await serve(model_dir(files))
    roles = [{"role": role, "content": "x"} for role in ("developer", "user")]
    await chat(server, messages=roles, chat_template_kwargs={"mood": "kind"})
    assert server.scripted.history[-1].prompt == "kind[system][user]"


async def test_model_without_a_template(server: RunningServer) -> None:
    server.scripted.tokenizer.template = None
    answer = await chat(server)
    assert answer.status == 400
    assert "set option.chat_template to a Jinja template" in answer.json()["error"]["message"]


async def test_template_that_refuses_the_messages(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.chat_template={{ messages[0].content.missing.attribute }}\n")
    error = (await chat(server)).json()["error"]
    assert error["message"].startswith("`messages` are refused by the chat template: ")
    assert error["param"] == "messages"


BEGUN = {"role": "assistant", "content": [{"type": "text", "text": "Well,"}, {"type": "text", "text": "deep "}]}


@pytest.mark.parametrize("begins", [{}, {"continue_final_message": True, "add_generation_prompt": False}])
@pytest.mark.parametrize("n", [1, 2])
async def test_echo(server: RunningServer, begins: dict[str, Any], n: int) -> None:
    asked: dict[str, Any] = {"messages": [*MESSAGES, BEGUN], "echo": True, "n": n, "logprobs": True, **begins}
    whole = (await chat(server, **asked)).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["Well,\ndeep " + TEXT] * n
    assert whole["usage"]["completion_tokens"] == 7 * n
    chunks = [chunk["choices"][0] for chunk in events(await chat(server, **asked, stream=True))]
    for index, choice in enumerate(whole["choices"]):
        role, echo, *others = [chunk for chunk in chunks if chunk["index"] == index]
        assert role["delta"] == {"role": "assistant", "content": ""}
        assert (echo["delta"], echo["logprobs"], echo["finish_reason"]) == ({"content": "Well,\ndeep "}, None, None)
        assert "".join(chunk["delta"].get("content", "") for chunk in others) == TEXT
        written = [each["token"] for chunk in others for each in (chunk["logprobs"] or {}).get("content", ())]
        assert written == [each["token"] for each in choice["logprobs"]["content"]] == WORDS


@pytest.mark.parametrize("stream", [False, True])
async def test_echo_in_lmis_form(server: RunningServer, stream: bool) -> None:
    answer = await server.post("/invocations", {"messages": [*MESSAGES, BEGUN], "echo": True, "stream": stream})
    choices = [line["choices"][0] for line in (answer.json_lines() if stream else [answer.json()])]
    messages = [choice.get("delta", choice.get("message")) for choice in choices]
    assert messages[0]["role"] == "assistant"
    assert "".join(message["content"] for message in messages) == "Well,\ndeep " + TEXT


@pytest.mark.parametrize("last", [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}])
async def test_echo_of_nothing(server: RunningServer, last: dict[str, Any]) -> None:
    """A last message is returned before the answer only if it is the assistant's."""
    (choice,) = (await chat(server, messages=[*MESSAGES, last], echo=True)).json()["choices"]
    assert choice["message"]["content"] == TEXT
    _, *others = events(await chat(server, messages=[*MESSAGES, last], echo=True, stream=True))
    assert [chunk["choices"][0]["delta"].get("content") for chunk in others] == [*WORDS, ""]


async def test_system_fingerprint(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED})
    found: list[str] = []
    for further in ("", "", "option.max_rolling_batch_size=5\n"):  # started anew, and with another option
        (directory / "serving.properties").write_text(SCRIPTED + further)
        server = await serve(directory)
        found.append((await chat(server)).json()["system_fingerprint"])
        streamed = events(await chat(server, stream=True, stream_options={"include_usage": True}))
        streamed += events(await server.post("/v1/completions", {"prompt": "Hi", "stream": True}))
        assert {chunk["system_fingerprint"] for chunk in streamed} == {found[-1]}
    assert found[0] == found[1] != found[2]

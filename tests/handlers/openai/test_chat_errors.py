"""Errors of OpenAI's chat dialect, its choice of a model, and other formats of its answers."""

import asyncio
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.openai.chats import PATH, chat, serve_with


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def bad_message(**message: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}, message]}


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"messages": []}, "messages", "must have at least 1 item"),
        ({"messages": "hello"}, "messages", "must be a valid list. Given: 'hello'"),
        (bad_message(role="user"), "messages.1.content", "must be a string, or a list of parts. Given: None"),
        (bad_message(role="user", content=5), "messages.1.content", "must be a valid list. Given: 5"),
        (bad_message(role=5, content="x"), "messages.1.role", "must be a valid string. Given: 5"),
        (bad_message(role="", content="x"), "messages.1.role", "must have at least 1 character. Given: ''"),
        (bad_message(role="r" * 201, content="x"), "messages.1.role", "must have at most 200 characters. Given: 'r"),
        (bad_message(role="user", content=["x", 5]), "messages.1.content.1", "must be an object. Given: 5"),
        (
            bad_message(role="user", content=[{"type": "input_audio"}]),
            "messages.1.content.0.type",
            "must be 'text' or 'image_url'. Given: 'input_audio'",
        ),
        (
            bad_message(role="user", content=[{"type": "image_url", "image_url": {"url": "https://host/cat.png"}}]),
            "messages.1.content.0",
            "is an image, but this model accepts only text on the scripted backend",
        ),
        ({"temperature": 3}, "temperature", "must be less than or equal to 2. Given: 3"),
        ({"temperature": "hot"}, "temperature", "must be a valid number. Given: 'hot'"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "must be less than or equal to 20. Given: 21"),
        ({"top_logprobs": 2}, "top_logprobs", "requires `logprobs`: true"),
        ({"max_tokens": 0}, "max_tokens", "must be greater than or equal to 1. Given: 0"),
        ({"n": 65}, "n", "must be less than or equal to 64. Given: 65"),
        ({"stop": [""]}, "stop.0", "must have at least 1 character. Given: ''"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "requires `stream`: true"),
        (
            {"response_format": {"type": "xml"}},
            "response_format.type",
            "must be 'text', 'json_object', 'json_schema', 'structural_tag', 'json' or 'regex'",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format",
            "must have `json_schema` if and only if its `type` is json_schema",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_json": {}},
            "response_format",
            "and `guided_json` cannot be used together: both constrain the output",
        ),
    ],
)
async def test_invalid_request(server: RunningServer, fields: dict[str, Any], param: str, message: str) -> None:
    answer = await chat(server, **fields)
    assert (answer.status, answer.content_type) == (400, "application/json")
    error = answer.json()["error"]
    assert error["message"].startswith(f"`{param}` {message}")
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert server.scripted.history == []


@pytest.mark.parametrize("stream", [False, True])
async def test_context_length_exceeded(server: RunningServer, stream: bool) -> None:
    long_prompt = await chat(server, messages=[{"role": "user", "content": "word " * 3000}], stream=stream)
    error = long_prompt.json()["error"]
    assert (long_prompt.status, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
    begins = f"This model's maximum context length is {server.scripted.max_length} tokens. However, "
    assert error["message"].startswith(f"{begins}`messages` must be at most {server.scripted.max_length - 1} tokens")
    many_tokens = await chat(server, max_completion_tokens=5000, stream=stream)
    error = many_tokens.json()["error"]
    assert (many_tokens.status, error["code"], error["param"]) == (
        400,
        "context_length_exceeded",
        "max_completion_tokens",
    )
    assert error["message"].startswith(f"{begins}`max_completion_tokens` must be at most ")


async def test_body_that_is_no_json(server: RunningServer) -> None:
    answer = await server.post(PATH, data=b"{")
    assert (answer.status, answer.json()["error"]["param"]) == (400, None)


async def test_model_by_name(server: RunningServer) -> None:
    assert (await chat(server, model="model")).status == 200
    answer = await chat(server, model="mudel")
    assert (answer.status, answer.json()["error"]) == (
        404,
        {
            "message": "model `mudel` is not served. Did you mean `model`? Served: model",
            "type": "invalid_request_error",
            "param": None,
            "code": "model_not_found",
        },
    )


async def test_model_store(serve: Serve, model_dir: ModelDirectory) -> None:
    one = model_dir({"serving.properties": SCRIPTED + "option.scripted_text=one\n"}, "store/one")
    model_dir({"serving.properties": SCRIPTED + "option.scripted_text=two\n"}, "store/two")
    server = await serve(one.parent)
    answers = [
        await chat(server, model="one"),
        await chat(server, model="two"),
        await chat(server, model="any", headers={"X-Amzn-SageMaker-Target-Model": "two"}),
    ]
    assert [answer.json()["choices"][0]["message"]["content"] for answer in answers] == ["one", "two", "two"]
    assert [answer.json()["model"] for answer in answers] == ["one", "two", "two"]
    assert [(await chat(server)).status, (await chat(server, model="three")).status] == [404, 404]


async def test_full_queue(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = "job_queue_size=1\noption.max_rolling_batch_size=1\nthrottle_error_http_code=429\n"
    server = await serve_with(serve, model_dir, properties)
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    waiting = [asyncio.create_task(chat(server)) for _ in scripts]
    await asyncio.gather(*(script.started.wait() for script in scripts))
    answer = await chat(server)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    assert (answer.json()["error"]["type"], answer.json()["error"]["code"]) == ("rate_limit_error", "overloaded")
    for task in waiting:
        task.cancel()
    await asyncio.gather(*(script.closed.wait() for script in scripts))


async def test_body_over_the_limit(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "max_request_size=1000\n")
    answer = await server.post(PATH, data=b"x" * 1001)
    assert (answer.status, answer.json()["error"]["code"]) == (413, "payload_too_large")


async def test_lmi_form_by_accept(server: RunningServer) -> None:
    answer = await chat(server, headers={"Accept": "application/jsonlines"})
    assert answer.content_type == "application/jsonlines"
    assert answer.json_lines()[-1]["choices"][0]["finish_reason"] == "eos_token"


@pytest.mark.parametrize(
    ("formatter", "stream", "content_type", "reason"),
    [
        ("json", False, "application/json", "eos_token"),
        ("jsonlines", False, "application/jsonlines", None),
        ("jsonlines", True, "application/jsonlines", None),
        ("sse", False, "application/json", "stop"),
        ("sse", True, "text/event-stream", None),
        ("none", True, "text/plain; charset=utf-8", None),
    ],
)
async def test_output_formatter(
    serve: Serve, model_dir: ModelDirectory, formatter: str, stream: bool, content_type: str, reason: str | None
) -> None:
    server = await serve_with(serve, model_dir, f"option.output_formatter={formatter}\n")
    answer = await chat(server, stream=stream)
    assert (answer.status, answer.content_type) == (200, content_type)
    if reason is not None:
        assert answer.json()["choices"][0]["finish_reason"] == reason


async def test_streaming_is_the_clients_choice_here(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_with(serve, model_dir, "option.enable_streaming=true\n")
    assert (await chat(server)).content_type == "application/json"


def dialect(prompt: str, parameters: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"max_new_tokens": "max_tokens", "stop_sequences": "stop"}
    fields = {names.get(name, name): value for name, value in parameters.items()}
    return PATH, {"messages": [{"role": "user", "content": prompt}], "stream": form == "stream"} | fields


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "openai_chat", dialect, form, case)

"""LMI's chat completions schema on LMI's routes, with the specification's own examples."""

from typing import Any

import pytest

from lmi_handlers.chat.request import EXAMPLE
from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.lmi.test_dynamic import serve_dynamic

TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
IMAGE_EXAMPLE = {
    "role": "user",
    "content": [
        {"type": "text", "text": "What is this an image of?"},
        {"type": "image_url", "image_url": {"url": "<base64 encoded image data | image url>"}},
    ],
}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def chat(server: RunningServer, **fields: Any) -> Answer:
    return await server.post("/invocations", {"messages": EXAMPLE["messages"]} | fields)


@pytest.mark.parametrize("path", ["/invocations", "/predictions/model", "/predictions/model/1"])
async def test_whole_answer(server: RunningServer, path: str) -> None:
    answer = await server.post(path, EXAMPLE)
    assert (answer.status, answer.content_type) == (200, "application/json")
    content = answer.json()
    (choice,) = content.pop("choices")
    log_probs = choice.pop("logprobs")
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": TEXT},
        "finish_reason": "eos_token",
    }
    assert set(content) == {"id", "object", "created", "usage"}
    assert (content["object"], content["id"][:9]) == ("chat.completion", "chatcmpl-")
    assert content["usage"] == {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}
    first = {"token": "Deep", "logprob": -0.25, "bytes": [68, 101, 101, 112]}
    assert log_probs["content"][0] == first | {"top_logprobs": [first]}


async def test_stream(server: RunningServer) -> None:
    answer = await server.post("/invocations", EXAMPLE | {"stream": True})
    assert answer.content_type == "application/jsonlines"
    lines = answer.json_lines()
    assert all(set(line) == {"id", "object", "created", "choices"} for line in lines)
    assert {line["object"] for line in lines} == {"chat.completion.chunk"}
    deltas = [line["choices"][0]["delta"] for line in lines]
    assert deltas == [{"content": "Deep", "role": "assistant"}, *({"content": word} for word in WORDS[1:])]
    assert [line["choices"][0]["finish_reason"] for line in lines] == [None] * 6 + ["eos_token"]
    (log_probs,) = lines[1]["choices"][0]["logprobs"]
    second = {"token": " Learning", "logprob": -0.25, "bytes": list(b" Learning")}
    assert log_probs == {"content": [second | {"top_logprobs": [second]}]}


async def test_finish_reasons(server: RunningServer) -> None:
    length, stop = await chat(server, max_tokens=2), await chat(server, stop=" is a")
    assert length.json()["choices"][0]["finish_reason"] == "length"
    assert stop.json()["choices"][0]["finish_reason"] == "stop_sequence"


async def test_several_choices_in_a_stream(server: RunningServer) -> None:
    answer = await chat(server, n=2, stream=True, stream_options={"include_usage": True})
    *lines, last = answer.json_lines()
    assert [line["choices"][0]["index"] for line in lines] == [0] * 7 + [1] * 7
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 14)


async def test_line_for_each_token_that_was_held_back(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two three"))
    lines = (await chat(server, stream=True, stop="two four")).json_lines()
    assert [line["choices"][0]["delta"]["content"] for line in lines] == ["one", " two", " three"]


@pytest.mark.parametrize(
    ("formatter", "stream", "content_type"),
    [
        ("json", False, "application/json"),
        ("json", True, "application/json"),
        ("jsonlines", False, "application/jsonlines"),
        ("jsonlines", True, "application/jsonlines"),
        ("sse", True, "text/event-stream"),
        ("none", False, "text/plain; charset=utf-8"),
    ],
)
async def test_output_formatter(
    serve: Serve, model_dir: ModelDirectory, formatter: str, stream: bool, content_type: str
) -> None:
    properties = SCRIPTED + f"option.output_formatter={formatter}\n"
    server = await serve(model_dir({"serving.properties": properties}))
    answer = await chat(server, stream=stream)
    assert (answer.status, answer.content_type) == (200, content_type)


async def test_server_sent_events(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.output_formatter=sse\n"}))
    events = (await chat(server)).events(b"data: ")
    assert [event["choices"][0]["delta"]["content"] for event in events] == WORDS


async def test_enable_streaming(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.enable_streaming=true\n"}))
    assert (await chat(server)).content_type == "application/jsonlines"


async def test_same_model_takes_both_schemas(server: RunningServer) -> None:
    assert (await server.post("/invocations", {"inputs": "Hi"})).json() == {"generated_text": TEXT}
    assert (await chat(server)).json()["choices"][0]["message"]["content"] == TEXT


async def test_dynamic_batch(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve_dynamic(serve, model_dir)
    assert (await chat(server)).json()["choices"][0]["message"]["content"] == TEXT
    assert (await chat(server, stream=True)).content_type == "application/jsonlines"


async def test_model_is_not_looked_at_where_there_is_one(server: RunningServer) -> None:
    assert (await chat(server, model="gpt2")).status == 200


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"messages": [IMAGE_EXAMPLE]},
            "`messages.0.content.1` is an image, but this model accepts only text on the scripted backend",
        ),
        ({"top_p": "x"}, "`top_p` must be a valid number. Given: 'x'"),
    ],
)
async def test_invalid_payload(server: RunningServer, fields: dict[str, Any], message: str) -> None:
    answer = await chat(server, **fields)
    assert (answer.status, answer.json()) == (424, {"error": message, "code": 424})


@pytest.mark.parametrize("stream", [False, True])
async def test_bad_parameter(server: RunningServer, stream: bool) -> None:
    answer = await chat(server, n=65, stream=stream)
    assert (answer.status, answer.content_type) == (424, "application/jsonlines" if stream else "application/json")
    assert answer.json()["error"] == "`n` must be less than or equal to 64. Given: 65"
    assert answer.json()["choices"][0]["finish_reason"] == "error"


async def test_failure_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one", error="the engine fell over"))
    first, last = (await chat(server, stream=True)).json_lines()
    assert first["choices"][0]["delta"]["content"] == "one"
    assert (last["choices"][0]["finish_reason"], last["error"]) == ("error", "the engine fell over")


def dialect(prompt: str, parameters: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"max_new_tokens": "max_tokens", "stop_sequences": "stop"}
    fields = {names.get(name, name): value for name, value in parameters.items()}
    return "/invocations", {"messages": [{"role": "user", "content": prompt}], "stream": form == "stream"} | fields


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "lmi_chat", dialect, form, case)

"""Triton's generate extension, as its documentation shows it."""

import asyncio
from typing import Any

import orjson
import pytest

from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters

TEXT = "Deep Learning is a really cool field."
WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
GENERATE = "/v2/models/mymodel/generate"
STREAM = "/v2/models/mymodel/generate_stream"
EXAMPLE = {"id": "42", "text_input": "client input", "parameters": {"stream": False, "temperature": 0}}
EXCLUDE = {"exclude_input_in_output": True}
HEAD = {"model_name": "mymodel", "model_version": "1"}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}, name="mymodel"))


async def test_the_specification_s_example(server: RunningServer) -> None:
    data = b'{"id": "42", "text_input": "client input", "parameters": {"stream": false, "temperature": 0}}'
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await server.post(GENERATE, data=data, headers=headers)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.json() == {"id": "42", **HEAD, "text_output": "client input" + TEXT}
    assert server.scripted.history[-1].prompt == "client input"


async def test_only_the_text_is_required(server: RunningServer) -> None:
    answer = await server.post(GENERATE, {"text_input": "hi"})
    assert answer.json() == {**HEAD, "text_output": "hi" + TEXT}


async def test_an_empty_id_does_not_come_back(server: RunningServer) -> None:
    assert (await server.post(GENERATE, {"id": "", "text_input": "hi"})).json().keys() == {*HEAD, "text_output"}


async def test_version(server: RunningServer) -> None:
    answer = await server.post("/v2/models/mymodel/versions/1/generate", EXAMPLE)
    assert answer.json()["model_version"] == "1"
    answer = await server.post("/v2/models/mymodel/versions/2/generate", EXAMPLE)
    assert (answer.status, answer.json()) == (404, {"error": "model `mymodel` has no version 2"})


async def test_stream(server: RunningServer) -> None:
    answer = await server.post(STREAM, {"id": "42", "text_input": "client input"})
    assert (answer.status, answer.content_type) == (200, "text/event-stream; charset=utf-8")
    assert answer.events(b"data: ") == [{"id": "42", **HEAD, "text_output": word} for word in WORDS]


async def test_stream_of_one_event(server: RunningServer) -> None:
    answer = await server.post(STREAM, {"text_input": "client input", "stream": False})
    assert answer.content_type == "text/event-stream; charset=utf-8"
    assert answer.events(b"data: ") == [{**HEAD, "text_output": "client input" + TEXT}]


async def test_each_event_is_sent_when_its_token_is_there(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", hold=True))
    async with server.client.post(STREAM, json={"text_input": "hi"}) as response:
        events = [await response.content.readuntil(b"\n\n") for _ in range(2)]
    assert [orjson.loads(event.removeprefix(b"data: "))["text_output"] for event in events] == ["one", " two"]


async def test_generate_does_not_stream(server: RunningServer) -> None:
    answer = await server.post(GENERATE, {"text_input": "hi", "stream": True})
    assert answer.status == 400
    message = "`stream` must be false on this route: use generate_stream for streams. Given: True"
    assert answer.json() == {"error": message}


@pytest.mark.parametrize("place", ["parameters", "beside them", "sampling_parameters", "sampling_parameters as text"])
async def test_parameters_wherever_they_are(server: RunningServer, place: str) -> None:
    given: dict[str, Any] = {"max_tokens": 2, "seed": 7}
    bodies = {
        "parameters": {"parameters": given},
        "beside them": given,
        "sampling_parameters": {"parameters": {"sampling_parameters": given}},
        "sampling_parameters as text": {"sampling_parameters": orjson.dumps(given).decode()},
    }
    answer = await server.post(GENERATE, {"text_input": "hi", **EXCLUDE, **bodies[place]})
    assert answer.json()["text_output"] == "Deep Learning"
    assert parameters(server).seed == 7


async def test_a_parameter_in_several_places(server: RunningServer) -> None:
    """Triton's own examples send the same parameters as a tensor and with the request."""
    given: dict[str, Any] = {"max_tokens": 2, "seed": 7}
    body = {
        "text_input": "hi",
        **EXCLUDE,
        "seed": [7],
        "parameters": given,
        "sampling_parameters": orjson.dumps(given).decode(),
    }
    answer = await server.post(GENERATE, body)
    assert answer.json()["text_output"] == "Deep Learning"
    assert parameters(server).seed == 7
    refused = await server.post(GENERATE, body | {"seed": True})
    assert refused.json() == {"error": "`seed` is given twice, in `parameters` and next to it"}


async def test_one_element_lists(server: RunningServer) -> None:
    answer = await server.post(GENERATE, {"id": ["7"], "text_input": ["hi"], "max_tokens": [2], "stream": [False]})
    assert answer.json() == {"id": "7", **HEAD, "text_output": "hiDeep Learning"}


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({"max_tokens": 3}, "max_new_tokens", 3),
        ({"max_new_tokens": 3}, "max_new_tokens", 3),
        ({"min_tokens": 3}, "min_length", 3),
        ({"stop_words": ["a", "b"]}, "stop_sequences", ["a", "b"]),
        ({"stop_words": [["a", "b"]]}, "stop_sequences", ["a", "b"]),
        ({"stop": "a"}, "stop_sequences", ["a"]),
        ({"stop_words": ""}, "stop_sequences", None),
        ({"bad_words": "a"}, "bad_sequences", ["a"]),
        ({"bad_words": ""}, "bad_sequences", None),
        ({"beam_width": 4}, "num_beams", 4),
        ({"random_seed": 5}, "seed", 5),
        ({"end_id": 2}, "stop_token_ids", [2]),
        ({"ignore_eos": True}, "ignore_eos_token", True),
        ({"exclude_input_in_output": False}, "return_full_text", True),
        ({"exclude_input_in_output": True}, "return_full_text", False),
        ({"return_full_text": False}, "return_full_text", False),
        ({}, "return_full_text", True),
        ({"guided_choice": ["yes"]}, "guided_choice", ["yes"]),
        ({}, "do_sample", False),
        ({"temperature": 0.5}, "do_sample", True),
        ({"top_p": 0.5, "do_sample": False}, "do_sample", False),
        ({"temperature": "0.7"}, "temperature", 0.7),
        ({"temperature": "1e-1"}, "temperature", 0.1),
        ({"max_tokens": "16"}, "max_new_tokens", 16),
        ({"top_k": " 5 "}, "top_k", 5),
        ({"ignore_eos": "true"}, "ignore_eos_token", True),
        ({"ignore_eos": "False"}, "ignore_eos_token", False),
        ({"end_id": "2"}, "stop_token_ids", [2]),
        ({"stop": "5"}, "stop_sequences", ["5"]),
        ({"guided_regex": "5"}, "guided_regex", "5"),
        ({"sampling_parameters": '{"max_tokens": "16"}'}, "max_new_tokens", 16),
        ({"exclude_input_in_output": "true"}, "return_full_text", False),
    ],
)
async def test_parameters_in_lmi_names(server: RunningServer, given: dict[str, Any], name: str, value: object) -> None:
    answer = await server.post(GENERATE, {"text_input": "hi", **given})
    assert answer.status == 200
    assert getattr(parameters(server), name) == value


async def test_tensorrt_llm_s_documented_request(server: RunningServer) -> None:
    body = {"text_input": "What is machine learning?", "max_tokens": 2, "bad_words": "", "stop_words": ""}
    answer = await server.post(GENERATE, body | {"pad_id": 2, "end_id": 2})
    assert answer.json()["text_output"] == "What is machine learning?Deep Learning"


async def test_additional_outputs(server: RunningServer) -> None:
    names = ["finish_reason", "cumulative_logprob", "logprobs", "num_input_tokens", "num_output_tokens"]
    asked = {f"return_{name}": True for name in names}
    body = {"text_input": "client input", "max_tokens": 2, "logprobs": 1, **EXCLUDE, **asked}
    answer = (await server.post(GENERATE, body)).json()
    places = orjson.loads(answer.pop("logprobs"))
    assert [[token["decoded_token"] for token in place.values()] for place in places] == [["Deep"], [" Learning"]]
    assert answer == {
        **HEAD,
        "text_output": "Deep Learning",
        "finish_reason": "length",
        "cumulative_logprob": -0.5,
        "num_input_tokens": 2,
        "num_output_tokens": 2,
    }


async def test_additional_outputs_of_a_stream(server: RunningServer) -> None:
    body = {"text_input": "hi", "return_finish_reason": True, "return_num_output_tokens": True, "stop": ["g is a"]}
    events = (await server.post(STREAM, body)).events(b"data: ")
    assert [event["finish_reason"] for event in events] == ["None"] * (len(events) - 1) + ["stop"]
    assert "".join(event["text_output"] for event in events) == "Deep Learnin"
    assert sum(event["num_output_tokens"] for event in events) == 4


async def test_several_sequences(server: RunningServer) -> None:
    body = {"text_input": "hi", "n": 2, "max_tokens": 1, "return_finish_reason": True, **EXCLUDE}
    answer = (await server.post(GENERATE, body)).json()
    assert answer == {**HEAD, "text_output": ["Deep", "Deep"], "finish_reason": ["length", "length"]}
    events = (await server.post(STREAM, body)).events(b"data: ")
    assert [event["text_output"] for event in events] == [["Deep", ""], ["", "Deep"]]


async def test_the_likeliest_of_several(server: RunningServer) -> None:
    body = {"text_input": "hi", "best_of": 2, "max_tokens": 1, "return_cumulative_logprob": True, **EXCLUDE}
    assert (await server.post(GENERATE, body)).json() == {**HEAD, "text_output": "Deep", "cumulative_logprob": -0.25}
    refused = await server.post(STREAM, body)
    message = "`best_of` must be at most 1, the number of sequences in the stream. Given: 2"
    assert (refused.status, refused.json()) == (400, {"error": message})


@pytest.mark.parametrize(("given", "begin"), [({"exclude_input_in_output": False}, "hi"), (EXCLUDE, ""), ({}, "hi")])
async def test_prompt_in_the_answer(server: RunningServer, given: dict[str, Any], begin: str) -> None:
    """Only a stream has no prompt by default, as in Triton's vLLM backend."""
    answer = await server.post(GENERATE, {"text_input": "hi", **given})
    assert answer.json()["text_output"] == begin + TEXT
    (event,) = (await server.post(STREAM, {"text_input": "hi", "stream": False, **given})).events(b"data: ")
    assert event["text_output"] == begin + TEXT


async def test_no_prompt_in_a_stream(server: RunningServer) -> None:
    answer = await server.post(STREAM, {"text_input": "hi", "exclude_input_in_output": False})
    message = "`exclude_input_in_output` must be true in a stream, which has no place for it. Given: False"
    assert (answer.status, answer.json()) == (400, {"error": message})
    events = (await server.post(STREAM, {"text_input": "hi", **EXCLUDE})).events(b"data: ")
    assert "".join(event["text_output"] for event in events) == TEXT


@pytest.mark.parametrize("path", [GENERATE, STREAM])
async def test_unknown_scalars_are_parameters_that_are_dropped(server: RunningServer, path: str) -> None:
    body = {"text_input": "hi", "temprature": 0.5, "parameters": {"mine": "x", "max_tokens": 2}}
    answer = await server.post(path, body)
    assert (answer.status, answer.headers["X-Lmi-Ignored-Parameters"]) == (200, "mine, temprature")
    assert parameters(server).max_new_tokens == 2


async def test_strict_parameters(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = SCRIPTED + "option.strict_parameters=true\n"
    server = await serve(model_dir({"serving.properties": properties}, name="mymodel"))
    answer = await server.post(GENERATE, {"text_input": "hi", "temprature": 0})
    message = "`temprature` is not a field of the scripted backend's parameters. Did you mean `temperature`?"
    assert (answer.status, answer.json()["error"][: len(message)]) == (400, message)


@pytest.mark.parametrize("path", [GENERATE, STREAM])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "`text_input` is required"),
        ({"text_input": 5}, "`text_input` must be a valid string. Given: 5"),
        ({"text_input": ["a", "b"]}, "`text_input` must be a valid string. Given: ['a', 'b']"),
        ({"text_input": "a", "parameters": []}, "`parameters` must be a valid dictionary. Given: []"),
        ({"text_input": "a", "max_tokens": 0}, "`max_tokens` must be greater than or equal to 1. Given: 0"),
        ({"text_input": "a", "stream": "no"}, "`stream` must be a valid boolean. Given: 'no'"),
        ({"text_input": "a", "return_logprobs": 1}, "`return_logprobs` must be a valid boolean. Given: 1"),
        (
            {"text_input": "a", "temprature": [0, 1]},
            "`temprature` is not a field of the scripted backend's parameters. Did you mean `temperature`?",
        ),
        ({"text_input": "a", "temperature": "hot"}, "`temperature` must be a valid number. Given: 'hot'"),
        ({"text_input": "a", "max_tokens": "2.5"}, "`max_tokens` must be a valid integer. Given: 2.5"),
        ({"text_input": "a", "return_logprobs": "yes"}, "`return_logprobs` must be a valid boolean. Given: 'yes'"),
        (
            {"text_input": "a", "seed": 1, "parameters": {"seed": 2}},
            "`seed` is given twice, in `parameters` and next to it",
        ),
        (
            {"text_input": "a", "stop": "b", "stop_words": "c"},
            "`stop` and `stop_words` are the same parameter: give only one of them",
        ),
        ({"text_input": "a", "sampling_parameters": "{"}, "`sampling_parameters` is not valid JSON"),
        ({"text_input": "a", "sampling_parameters": 1}, "`sampling_parameters` must be an object. Given: 1"),
        ({"text_input": "w " * 2048}, "`text_input` must be at most 2047 tokens long. Given: 2049"),
    ],
)
async def test_invalid_request(server: RunningServer, path: str, body: dict[str, Any], message: str) -> None:
    answer = await server.post(path, body)
    assert (answer.status, answer.content_type) == (400, "application/json")
    assert answer.json()["error"].startswith(message)
    assert answer.json().keys() == {"error"}


async def test_more_tokens_than_the_context_has(server: RunningServer) -> None:
    server.scripted.max_length = 4
    body = {"text_input": "one two", "max_tokens": 100, "return_finish_reason": True, **EXCLUDE}
    answer = await server.post(GENERATE, body)
    assert answer.json() == {**HEAD, "text_output": "Deep Learning", "finish_reason": "length"}


async def test_unknown_model(server: RunningServer) -> None:
    answer = await server.post("/v2/models/yourmodel/generate", EXAMPLE)
    assert answer.status == 404
    assert answer.json()["error"].startswith("model `yourmodel` is not served.")


@pytest.mark.parametrize("stream", [True, False])
async def test_failure_before_the_first_token(server: RunningServer, stream: bool) -> None:
    """The first error of a stream is an event, with the error's status."""
    script = Script("", error="the engine fell over")
    server.scripted.enqueue(script, script)
    answer = await server.post(GENERATE, {"text_input": "hi"})
    assert (answer.status, answer.content_type) == (500, "application/json")
    assert answer.json() == {"error": "the engine fell over"}
    answer = await server.post(STREAM, {"text_input": "hi", "stream": stream})
    assert (answer.status, answer.content_type) == (500, "text/event-stream; charset=utf-8")
    assert answer.events(b"data: ") == [{"error": "the engine fell over"}]


async def test_failure_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    answer = await server.post(STREAM, {"text_input": "hi"})
    assert answer.status == 200
    assert answer.events(b"data: ")[2:] == [{"error": "the engine fell over"}]


async def test_abort(server: RunningServer) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    body = {"text_input": "hi", "return_finish_reason": True}
    request = asyncio.create_task(server.post(STREAM, body, headers={"x-request-id": "mine"}))
    await script.started.wait()
    assert (await server.post("/v1/abort_request", {"request_id": "mine"})).status == 200
    *_, last = (await request).events(b"data: ")
    assert last == {**HEAD, "text_output": "", "finish_reason": "abort"}


def dialect(prompt: str, given: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"max_new_tokens": "max_tokens", "stop_sequences": "stop_words"}
    parameters = {names.get(name, name): value for name, value in given.items()}
    body = {"text_input": prompt, "return_finish_reason": True, "return_num_output_tokens": True}
    if form == "stream":
        return STREAM, {"id": "42", **body, "parameters": parameters}
    return GENERATE, {"id": "42", **body, **EXCLUDE, "parameters": parameters}


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "triton", dialect, form, case)

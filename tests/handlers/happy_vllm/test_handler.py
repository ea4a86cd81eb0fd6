"""happy_vllm's generating endpoints, with its documentation's examples, and the abort of requests of every dialect."""

import asyncio
from itertools import pairwise
from typing import Any

import orjson
import pytest

from lmi_core.generation.repetition import RepetitionDetection
from lmi_handlers.happy_vllm.formatters import BYTES_PER_TOKEN
from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve, parameters

WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
TEXT = "".join(WORDS)
GENERATING = ["/v1/generate", "/v1/generate_stream"]
GREEDY = {"temperature": 0, "repetition_penalty": 1, "top_p": 0.8}
ADA = "Describe Ada Lovelace. Your answer should be in form of a json with the keywords name, surname, age, occupation."
SIMPLE = {
    "name": "string",
    "age": "integer",
    "is_alive": "boolean",
    "height_in_meters": "number",
    "names_of_children": ["string"],
}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "is_alive": {"type": "boolean"},
        "height_in_meters": {"type": "number"},
        "names_of_children": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name", "age", "is_alive", "height_in_meters", "names_of_children"],
}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


async def test_nominal_example(server: RunningServer) -> None:
    body = {"prompt": "Please describe Ada Lovelace to me.", **GREEDY, "max_tokens": 50}
    answer = await server.post("/v1/generate", body)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.json() == {"responses": [TEXT], "finish_reasons": ["stop"], "usages": [usage(6, 7)]}
    assert parameters(server).max_new_tokens == 50
    assert (parameters(server).temperature, parameters(server).top_p) == (0, 0.8)


async def test_response_pool_example(server: RunningServer) -> None:
    prompt = "What was the occupation of Ada Lovelace?"
    pool = ["mathematician", "astronaut", "show writer"]
    answer = await server.post("/v1/generate", {"prompt": prompt, **GREEDY, "response_pool": pool})
    assert answer.status == 200
    assert parameters(server).guided_choice == pool


@pytest.mark.parametrize("given", [{}, {"max_tokens": 1}, {"max_tokens": 500}])
async def test_response_pool_has_room_for_its_longest_item(server: RunningServer, given: dict[str, int]) -> None:
    pool = ["no", "perhaps", "\u00fcberhaupt nicht"]
    answer = await server.post("/v1/generate", {"prompt": "Is it?", **given, "response_pool": pool})
    assert answer.status == 200
    assert parameters(server).max_new_tokens == len("\u00fcberhaupt nicht".encode()) + 1


async def test_json_format_example(server: RunningServer) -> None:
    types = {"name": "string", "surname": "string", "age": "integer", "occupation": "string"}
    answer = await server.post("/v1/generate", {"prompt": ADA, **GREEDY, "max_tokens": 100, "json_format": types})
    assert answer.status == 200
    schema = parameters(server).guided_json
    assert schema is not None
    assert schema["required"] == ["name", "surname", "age", "occupation"]


@pytest.mark.parametrize(("json_format", "is_json_schema"), [(SIMPLE, False), (SCHEMA, True)])
async def test_both_forms_of_json_format(
    server: RunningServer, json_format: dict[str, Any], is_json_schema: bool
) -> None:
    body = {"prompt": ADA, "json_format": json_format, "json_format_is_json_schema": is_json_schema}
    assert (await server.post("/v1/generate", body)).status == 200
    assert parameters(server).guided_json == SCHEMA


@pytest.mark.parametrize("path", GENERATING)
async def test_prompt_in_response(server: RunningServer, path: str) -> None:
    answer = await server.post(path, {"prompt": "Hey there", "prompt_in_response": True})
    answers = [answer.json()] if path == "/v1/generate" else answer.json_lines()
    assert {one["prompt"] for one in answers} == {"Hey there"}


async def test_stream_has_the_text_so_far(server: RunningServer) -> None:
    answer = await server.post("/v1/generate_stream", {"prompt": "Hey there", "max_tokens": 3})
    assert (answer.status, answer.content_type) == (200, "application/jsonlines")
    assert answer.json_lines() == [
        {"responses": ["Deep"], "finish_reasons": ["None"], "usages": [usage(2, 1)]},
        {"responses": ["Deep Learning"], "finish_reasons": ["None"], "usages": [usage(2, 2)]},
        {"responses": ["Deep Learning is"], "finish_reasons": ["length"], "usages": [usage(2, 3)]},
    ]


async def test_long_lines_of_a_stream_come_less_often(server: RunningServer) -> None:
    tokens = 800
    server.scripted.enqueue(Script(" ".join(f"w{i % 50}" for i in range(tokens))))
    answer = await server.post("/v1/generate_stream", {"prompt": "Hey", "max_tokens": tokens, "logprobs": 20})
    lines = [orjson.loads(line) for line in answer.body.splitlines()]
    counts = [line["usages"][0]["completion_tokens"] for line in lines]
    assert counts[:5] == [1, 2, 3, 4, 5]
    assert counts[-1] == tokens
    assert [len(line["logprobs"][0]) for line in lines] == counts
    assert all(later["responses"][0].startswith(line["responses"][0]) for line, later in pairwise(lines))
    assert lines[-1]["finish_reasons"] == ["stop"]
    assert len(answer.body) < (tokens + 100) * BYTES_PER_TOKEN  # a line for each token would be 300 MB


async def test_several_sequences(server: RunningServer) -> None:
    body = {"prompt": "Hey there", "n": 2, "max_tokens": 1}
    both = {"responses": ["Deep", "Deep"], "finish_reasons": ["length"] * 2, "usages": [usage(2, 1)] * 2}
    assert (await server.post("/v1/generate", body)).json() == both
    lines = (await server.post("/v1/generate_stream", body)).json_lines()
    assert [line["finish_reasons"] for line in lines] == [["length", "None"], ["length", "length"]]
    assert lines[-1] == both


async def test_best_of(server: RunningServer) -> None:
    body = {"prompt": "Hey", "best_of": 3, "n": 2, "max_tokens": 1, "logprobs": 0}
    answer = (await server.post("/v1/generate", body)).json()
    (best,), (second,) = answer["logprobs"]
    assert [next(iter(place.values()))["logprob"] for place in (best, second)] == [-0.25, -0.5]
    refused = await server.post("/v1/generate_stream", body)
    message = "`best_of` must be at most 2, the number of sequences in the stream. Given: 3"
    assert (refused.status, refused.json()) == (422, {"detail": message})


async def test_log_probabilities(server: RunningServer) -> None:
    body = {"prompt": "Hey there", "max_tokens": 1, "logprobs": 2, "prompt_logprobs": 1}
    answer = (await server.post("/v1/generate", body)).json()
    [[place]] = answer["logprobs"]
    assert [(token["decoded_token"], token["rank"]) for token in place.values()] == [("Deep", 1), (" Learning", 2)]
    first, second = answer["prompt_logprobs"]
    assert [token["decoded_token"] for place in (first, second) for token in place.values()] == ["Hey", " there"]


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ({}, "max_new_tokens", 16),
        ({}, "do_sample", True),
        ({}, "temperature", 1.0),
        ({"min_tokens": 3}, "min_length", 3),
        ({"stop": "a"}, "stop_sequences", ["a"]),
        ({"stop": ["a", "b"]}, "stop_sequences", ["a", "b"]),
        ({"stop_token_ids": [3]}, "stop_token_ids", [3]),
        ({"bad_words": ["a"]}, "bad_sequences", ["a"]),
        ({"ignore_eos": True}, "ignore_eos_token", True),
        ({"presence_penalty": 0.5}, "presence_penalty", 0.5),
        ({"frequency_penalty": 0.5}, "frequency_penalty", 0.5),
        ({"logit_bias": {"3": -100}}, "logit_bias", {"3": -100}),
        ({"allowed_token_ids": [3, 4]}, "allowed_token_ids", [3, 4]),
        (
            {"repetition_detection": {"max_pattern_size": 3, "min_count": 2}},
            "repetition_detection",
            RepetitionDetection(max_pattern_size=3, min_count=2),
        ),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "guided_choice", ["yes", "no"]),
        ({"structured_outputs": {"regex": "a+"}}, "guided_regex", "a+"),
        ({"min_p": 0.5}, "min_p", 0.5),
        ({"top_k": 5}, "top_k", 5),
        ({"seed": 5}, "seed", 5),
        ({"skip_special_tokens": False}, "skip_special_tokens", False),
        ({"truncate_prompt_tokens": 5}, "truncate", 5),
        ({"use_beam_search": True, "best_of": 3, "temperature": 0}, "num_beams", 3),
        ({"use_beam_search": True, "best_of": 3, "temperature": 0}, "do_sample", False),
        ({"detokenize": True}, "logprobs", None),
    ],
)
async def test_sampling_keywords_of_vllm(
    server: RunningServer, given: dict[str, Any], name: str, value: object
) -> None:
    answer = await server.post("/v1/generate", {"prompt": "Hey", **given})
    assert answer.status == 200, answer.body
    assert getattr(parameters(server), name) == value


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "`prompt` is required"),
        ({"prompt": ""}, "`prompt` must have at least 1 character. Given: ''"),
        ({"prompt": "a", "max_tokens": 0}, "`max_tokens` must be greater than or equal to 1. Given: 0"),
        (
            {"prompt": "a", "logits_processors": ["f"]},
            "`logits_processors` must be null or []: requests cannot bring code",
        ),
        (
            {"prompt": "a", "response_pool": ["b"], "min_tokens": 1},
            "`response_pool` and `min_tokens` cannot be used together",
        ),
        (
            {"prompt": "a", "response_pool": ["never", "b"], "stop": ["\n", "eve"]},
            "`stop` must not contain a part of a string in `response_pool`. Given: 'eve'",
        ),
        (
            {"prompt": "a", "response_pool": ["b"], "json_format": {"c": "string"}},
            "`response_pool` and `json_format` cannot be used together",
        ),
        (
            {"prompt": "a", "json_format": {"c": "string"}, "structured_outputs": {"regex": "a"}},
            "`json_format` and `structured_outputs.regex` cannot be used together",
        ),
        (
            {"prompt": "a", "structured_outputs": {"choice": ["a"], "regex": "a"}},
            "`structured_outputs.choice` and `structured_outputs.regex` cannot be used together",
        ),
        (
            {"prompt": "a", "allowed_token_ids": []},
            "`allowed_token_ids` must have at least 1 item",
        ),
        ({"prompt": "a", "response_pool": [""]}, "`response_pool.0` must have at least 1 character. Given: ''"),
        ({"prompt": "a", "json_format": {"b": "text"}}, "`json_format.b` must be one of string, integer, boolean"),
        ({"prompt": "a", "json_format": {"b": ["string", "number"]}}, "`json_format.b` must be one of string"),
        ({"prompt": "w " * 2048}, "`prompt` must be at most 2047 tokens long. Given: 2049"),
    ],
)
async def test_invalid_request(server: RunningServer, path: str, body: dict[str, Any], message: str) -> None:
    answer = await server.post(path, body)
    assert (answer.status, answer.content_type) == (422, "application/json")
    assert answer.json()["detail"].startswith(message)


async def test_the_context_ends_what_is_too_long(server: RunningServer) -> None:
    server.scripted.max_length = 4
    answer = (await server.post("/v1/generate", {"prompt": "one two", "max_tokens": 100})).json()
    assert (answer["responses"], answer["finish_reasons"]) == (["Deep Learning"], ["length"])


async def test_failure_within_a_stream(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one two", error="the engine fell over"))
    answer = await server.post("/v1/generate_stream", {"prompt": "Hey"})
    assert answer.json_lines()[2:] == [{"detail": "the engine fell over"}]


async def test_model_of_several(serve: Serve, model_dir: ModelDirectory) -> None:
    one = model_dir({"serving.properties": SCRIPTED + "option.scripted_text=one\n"}, "store/one")
    model_dir({"serving.properties": SCRIPTED + "option.scripted_text=two\n"}, "store/two")
    server = await serve(one.parent)
    by_body = await server.post("/v1/generate", {"prompt": "Hey", "model": "two"})
    by_header = await server.post("/v1/generate", {"prompt": "Hey"}, headers={"X-Amzn-SageMaker-Target-Model": "two"})
    assert [answer.json()["responses"] for answer in (by_body, by_header)] == [["two"], ["two"]]
    assert (await server.post("/v1/generate", {"prompt": "Hey"})).status == 404


ABORTED = {"responses": ["one two"], "finish_reasons": ["abort"], "usages": [usage(1, 2)]}


async def abort(server: RunningServer, path: str, body: object) -> Any:
    """The answer to a request that another connection aborts once the backend has said two words."""
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    request = asyncio.create_task(server.post(path, body, headers={"x-request-id": "mine"}))
    await script.started.wait()
    aborted = await server.post("/v1/abort_request", {"request_id": "mine"})
    assert (aborted.status, aborted.json()) == (200, {"request_id": "mine", "aborted": True})
    await script.closed.wait()
    return await request


async def test_abort_of_a_whole_answer(server: RunningServer) -> None:
    answer = await abort(server, "/v1/generate", {"prompt": "Hey"})
    assert (answer.status, answer.json()) == (200, ABORTED)


async def test_abort_of_a_stream(server: RunningServer) -> None:
    answer = await abort(server, "/v1/generate_stream", {"prompt": "Hey"})
    assert answer.json_lines()[-1] == ABORTED


async def test_abort_of_another_dialect_s_request(server: RunningServer) -> None:
    answer = await abort(server, "/invocations", {"inputs": "Hey", "parameters": {"details": True}})
    details = answer.json()["details"]
    assert (details["finish_reason"], details["generated_tokens"]) == ("abort", 2)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hey"}]}),
        ("/invocations", {"messages": [{"role": "user", "content": "Hey"}]}),
        ("/v1/completions", {"prompt": "Hey"}),
    ],
)
async def test_abort_by_the_id_that_an_answer_shows(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    script = Script("one two", hold=True)
    server.scripted.enqueue(script)
    async with server.client.post(path, json=body | {"stream": True}) as response:
        shown_id = orjson.loads((await response.content.readuntil(b"\n")).removeprefix(b"data: "))["id"]
        aborted = await server.post("/v1/abort_request", {"request_id": shown_id})
        assert (aborted.status, aborted.json()) == (200, {"request_id": shown_id, "aborted": True})
        await script.closed.wait()
        assert b'"finish_reason":"abort"' in await response.read()


async def test_abort_of_an_id_that_looks_like_an_answer_s(server: RunningServer) -> None:
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    requests = []
    for script, request_id in zip(scripts, ("cmpl-mine", "mine"), strict=True):
        headers = {"x-request-id": request_id}
        requests.append(asyncio.create_task(server.post("/v1/generate", {"prompt": "Hey"}, headers=headers)))
        await script.started.wait()
    for script, request in zip(scripts, requests, strict=True):  # itself first, then what it may be an answer's id of
        assert (await server.post("/v1/abort_request", {"request_id": "cmpl-mine"})).status == 200
        await script.closed.wait()
        assert (await request).json()["finish_reasons"] == ["abort"]
    assert (await server.post("/v1/abort_request", {"request_id": "cmpl-mine"})).status == 404


async def test_abort_of_what_is_not_running(server: RunningServer) -> None:
    answer = await server.post("/v1/abort_request", {"request_id": "nobody's"})
    assert (answer.status, answer.json()) == (404, {"detail": "no request with the id `nobody's` is running"})
    assert (await server.post("/v1/abort_request", {})).status == 422


def dialect(prompt: str, given: dict[str, Any], form: str) -> tuple[str, object]:
    names = {"max_new_tokens": "max_tokens", "stop_sequences": "stop"}
    keywords = {names.get(name, name): value for name, value in given.items()}
    return ("/v1/generate_stream" if form == "stream" else "/v1/generate"), {"prompt": prompt, **keywords}


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "happy_vllm", dialect, form, case)

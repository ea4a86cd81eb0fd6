"""Triton's generate extension with tensors by their names."""

import asyncio
from typing import Any

import numpy
import orjson
import pytest

from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.handlers.triton.tensor_backend import FAILING_TOKEN, backwards, serve_backwards

GENERATE = "/v2/models/model/generate"
STREAM = "/v2/models/model/generate_stream"
HEAD = {"model_name": "model", "model_version": "1"}
IDS = {"input_ids": [7, 8, 9], "request_output_len": 8}
WHOLE = {"output_ids": [9, 8, 7], "cum_log_probs": -1.5}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_backwards(serve, model_dir)


async def test_whole(server: RunningServer) -> None:
    answer = await server.post(GENERATE, {"id": "42", **IDS})
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert answer.json() == {"id": "42", **HEAD, **WHOLE}


async def test_parameters_are_tensors_too(server: RunningServer) -> None:
    body = {"input_ids": [7, 8, 9], "parameters": {"request_output_len": 1, "random_seed": None}}
    assert (await server.post(GENERATE, body)).json() == {**HEAD, "output_ids": 9, "cum_log_probs": -0.5}


async def test_stream(server: RunningServer) -> None:
    answer = await server.post(STREAM, {"id": "42", "streaming": True, **IDS})
    assert (answer.status, answer.content_type) == (200, "text/event-stream; charset=utf-8")
    head = {"id": "42", **HEAD}
    assert answer.events(b"data: ") == [{**head, "output_ids": token, "cum_log_probs": -0.5} for token in (9, 8, 7)]


async def test_stream_of_one_event(server: RunningServer) -> None:
    assert (await server.post(STREAM, IDS)).events(b"data: ") == [{**HEAD, **WHOLE}]


async def test_each_event_is_sent_when_it_is_there(server: RunningServer) -> None:
    async with server.client.post(STREAM, json={"streaming": True, "hold": True, **IDS}) as response:
        events = [await response.content.readuntil(b"\n\n") for _ in range(3)]
    assert [orjson.loads(event.removeprefix(b"data: "))["output_ids"] for event in events] == [9, 8, 7]
    await backwards(server).closed.wait()


async def test_generate_does_not_stream(server: RunningServer) -> None:
    answer = await server.post(GENERATE, {"streaming": True, **IDS})
    message = "`streaming` must be false on this route: use generate_stream for streams. Given: True"
    assert (answer.status, answer.json()) == (400, {"error": message})


async def test_a_text_is_generated_from_as_ever(server: RunningServer) -> None:
    answer = await server.post(GENERATE, {"text_input": "hi", "max_tokens": 2})
    assert answer.json() == {**HEAD, "text_output": "hiDeep Learning"}


@pytest.mark.parametrize("path", [GENERATE, STREAM])
async def test_unknown_scalars_are_parameters_that_are_dropped(server: RunningServer, path: str) -> None:
    answer = await server.post(path, {"mine": 5, **IDS})
    assert (answer.status, answer.headers["X-Lmi-Ignored-Parameters"]) == (200, "mine")
    refused = await server.post(path, {"temperature": 5, **IDS})
    assert (refused.status, refused.json()) == (400, {"error": "`temperature` is not a tensor of this model."})


@pytest.mark.parametrize(
    ("name", "value", "array"),
    [
        ("bad_words_list", [5, 9, 1, 2], numpy.array([[[5, 9], [1, 2]]], "int32")),
        ("bad_words_list", [[[5, 9], [1, 2]]], numpy.array([[[5, 9], [1, 2]]], "int32")),
        ("draft_logits", [[1, 2.5], [-3, 0]], numpy.array([[1, 2.5], [-3, 0]], "float32")),
        ("draft_logits", [1, 2.5], numpy.array([[1, 2.5]], "float32")),
        ("prompt_embedding_table", 0.5, numpy.array([[0.5]], "float16")),
        ("random_seed", [5], numpy.array([5], "uint64")),
        ("note", "hi", numpy.array([b"hi"], object)),
        ("note", ["hi", "you"], numpy.array([b"hi", b"you"], object)),
        ("note", [], numpy.array([], object)),
    ],
)
async def test_shapes(server: RunningServer, name: str, value: object, array: numpy.ndarray[Any, Any]) -> None:
    answer = await server.post(GENERATE, {name: value, **IDS})
    assert answer.status == 200, answer.body
    found = backwards(server).inferred[-1][1][name].array()
    numpy.testing.assert_array_equal(found, array, strict=True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input_id": [1]}, "`input_id` is not a tensor of this model. Did you mean `input_ids`?"),
        ({"request_output_len": [1, 2]}, "`request_output_len` of shape [1, 1] must have 1 elements. Given: 2"),
        ({"bad_words_list": [5, 9, 1]}, "`bad_words_list` of shape [1, 2, 1] must have 2 elements. Given: 3"),
        ({"input_ids": "hi"}, "`input_ids` must contain values of type INT32. Given: 'hi'"),
        ({"input_ids": {"a": 1}}, "`input_ids` must contain values of type INT32. Given: {'a': 1}"),
        ({"input_ids": [1], "parameters": [1]}, "`parameters` must be a valid dictionary. Given: [1]"),
        (IDS | {"parameters": {"input_ids": 1}}, "`input_ids` is given twice, in `parameters` and next to it"),
        (IDS | {"id": 5}, "`id` must be a valid string. Given: 5"),
        ({"request_output_len": 3}, "`input_ids` is required"),
    ],
)
@pytest.mark.parametrize("path", [GENERATE, STREAM])
async def test_invalid_request(server: RunningServer, path: str, body: dict[str, Any], message: str) -> None:
    answer = await server.post(path, body)
    assert (answer.status, answer.content_type) == (400, "application/json")
    assert answer.json() == {"error": message}


async def test_failure_within_a_stream(server: RunningServer) -> None:
    body = {"input_ids": [7, FAILING_TOKEN, 9], "request_output_len": 8, "streaming": True}
    answer = await server.post(STREAM, body)
    assert answer.status == 200
    assert answer.events(b"data: ")[1:] == [{"error": "the engine fell over"}]


async def test_failure_before_the_first_event(server: RunningServer) -> None:
    answer = await server.post(STREAM, {"input_ids": FAILING_TOKEN, "request_output_len": 8, "streaming": True})
    assert (answer.status, answer.content_type) == (500, "text/event-stream; charset=utf-8")
    assert answer.events(b"data: ") == [{"error": "the engine fell over"}]


async def test_abort(server: RunningServer) -> None:
    body = {"streaming": True, "hold": True, **IDS}
    request = asyncio.create_task(server.post(STREAM, body, headers={"x-request-id": "mine"}))
    await backwards(server).holding.get()
    assert (await server.post("/v1/abort_request", {"request_id": "mine"})).status == 200
    assert (await request).events(b"data: ")[3:] == [{"error": "the request was aborted"}]

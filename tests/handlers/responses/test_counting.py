"""Counting the tokens of a request's input."""

from typing import Any

import pytest

from tests.conftest import Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.responses.asking import WEATHER, respond, serve_with

PATH = "/v1/responses/input_tokens"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve_with(serve, model_dir, "option.tool_call_parser=hermes\n")


async def count(server: RunningServer, **fields: Any) -> Answer:
    return await server.post(PATH, fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "What is it?"},
        {"input": [{"role": "user", "content": "What is it?"}], "instructions": "Be brief."},
        {"input": "What is it?", "tools": [WEATHER]},
        {"input": "What is it?", "tools": [WEATHER], "tool_choice": "none", "max_output_tokens": 5},
    ],
)
async def test_it_is_what_a_response_counts(server: RunningServer, fields: dict[str, Any]) -> None:
    counted = await count(server, **fields)
    response = await server.post("/v1/responses", fields)
    expected = response.json()["usage"]["input_tokens"]
    assert (counted.status, counted.json()) == (200, {"object": "response.input_tokens", "input_tokens": expected})
    assert len(server.scripted.history) == 1


async def test_a_conversation_that_goes_on(server: RunningServer) -> None:
    first = await respond(server, "one")
    fields = {"input": "two", "previous_response_id": first["id"]}
    counted = (await count(server, **fields)).json()["input_tokens"]
    assert counted == (await respond(server, "two", previous_response_id=first["id"]))["usage"]["input_tokens"]
    assert counted > (await count(server, input="two")).json()["input_tokens"]


async def test_truncation(server: RunningServer) -> None:
    server.scripted.max_length = 20
    turns = [{"role": role, "content": "a b c d e f"} for role in ("user", "assistant") * 5]
    given = [*turns, {"role": "user", "content": "last"}]
    assert (await count(server, input=given)).json()["input_tokens"] > 20
    assert (await count(server, input=given, truncation="auto")).json()["input_tokens"] < 20


async def test_what_is_refused(server: RunningServer) -> None:
    image = {"type": "input_image", "image_url": "https://host/cat.png"}
    for fields, status, param in (
        ({}, 400, "input"),
        ({"input": "x", "model": "other"}, 404, None),
        ({"input": "x", "previous_response_id": "resp_1"}, 404, "previous_response_id"),
        ({"input": [{"role": "user", "content": [image]}]}, 400, "input.0.content.0"),
        ({"input": "x", "tool_choice": "required"}, 400, "tool_choice"),
    ):
        answer = await count(server, **fields)
        assert (answer.status, answer.json()["error"]["param"]) == (status, param), fields


async def test_unknown_fields_are_listed(server: RunningServer) -> None:
    assert (await count(server, input="x", personality="friendly")).headers["X-Lmi-Ignored-Parameters"] == "personality"

"""LMI's parameters by the names of vLLM and transformers, to which LMI passes what it does not know."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

HEADER = "X-Lmi-Ignored-Parameters"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"max_tokens": 7}, {"max_new_tokens": 7}),
        ({"min_tokens": 2}, {"min_length": 2}),
        ({"min_new_tokens": 2}, {"min_length": 2}),
        ({"ignore_eos": True}, {"ignore_eos_token": True}),
        ({"bad_words": ["x"]}, {"bad_sequences": ["x"]}),
        ({"max_tokens": 7, "max_new_tokens": None}, {"max_new_tokens": 7}),
    ],
)
async def test_names_of_engines(server: RunningServer, given: dict[str, Any], read: dict[str, Any]) -> None:
    answer = await server.post("/invocations", {"inputs": "Hey", "parameters": given})
    assert (answer.status, HEADER in answer.headers) == (200, False), answer.body
    parameters = server.scripted.history[-1].parameters
    assert {name: getattr(parameters, name) for name in read} == read


@pytest.mark.parametrize(
    ("given", "name", "value", "ignored"),
    [
        ({"max_tokens": 7, "max_new_tokens": 5}, "max_new_tokens", 5, "max_tokens"),
        ({"min_tokens": 2, "min_new_tokens": 3}, "min_length", 2, "min_new_tokens"),
    ],
)
async def test_one_name_counts(
    server: RunningServer, given: dict[str, Any], name: str, value: int, ignored: str
) -> None:
    answer = await server.post("/invocations", {"inputs": "Hey", "parameters": given})
    assert (answer.status, answer.headers[HEADER]) == (200, ignored), answer.body
    assert getattr(server.scripted.history[-1].parameters, name) == value


async def test_errors_have_the_name_that_was_given(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": "Hey", "parameters": {"max_tokens": 0}})
    assert (answer.status, answer.json()["error"]) == (
        424,
        "`max_tokens` must be greater than or equal to 1. Given: 0",
    )

"""Numbers and booleans that clients write as another type of JSON: 64.0 and "64" for 64."""

from typing import Any

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

CHAT = {"messages": [{"role": "user", "content": "Hey"}]}
# Each with the name of the limit, and where the parameters are in the body.
ROUTES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("/invocations", {"inputs": "Hey"}, "max_new_tokens", "parameters"),
    ("/invocations", CHAT, "max_tokens", None),
    ("/v1/chat/completions", CHAT, "max_completion_tokens", None),
    ("/v1/completions", {"prompt": "Hey"}, "max_tokens", None),
    ("/v1/generate", {"prompt": "Hey"}, "max_tokens", None),
    ("/v1/responses", {"input": "Hey"}, "max_output_tokens", None),
    ("/generate", {"inputs": "Hey"}, "max_new_tokens", "parameters"),
    ("/api/generate", {"prompt": "Hey", "stream": False}, "num_predict", "options"),
    ("/v2/models/model/generate", {"text_input": "Hey"}, "max_tokens", "parameters"),
]


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def body_of(body: dict[str, Any], place: str | None, given: dict[str, Any]) -> dict[str, Any]:
    return body | ({place: given} if place else given)


@pytest.mark.parametrize(("path", "body", "limit", "place"), ROUTES)
async def test_same_value_of_another_type(
    server: RunningServer, path: str, body: dict[str, Any], limit: str, place: str | None
) -> None:
    for value in (7.0, "7", 7):
        answer = await server.post(path, body_of(body, place, {limit: value, "temperature": "0.25", "seed": "5"}))
        assert answer.status == 200, answer.body
        parameters = server.scripted.history[-1].parameters
        assert (parameters.max_new_tokens, parameters.temperature, parameters.seed) == (7, 0.25, 5)
        assert [type(each) for each in (parameters.max_new_tokens, parameters.temperature)] == [int, float]


@pytest.mark.parametrize(("path", "body", "limit", "place"), ROUTES)
async def test_other_values_are_refused(
    server: RunningServer, path: str, body: dict[str, Any], limit: str, place: str | None
) -> None:
    for value in (7.5, "7.5", "seven", True, 1e300):
        answer = await server.post(path, body_of(body, place, {limit: value}))
        assert 400 <= answer.status < 500
        assert f"{limit}` must be a valid integer" in answer.body.decode()


async def test_booleans_as_texts(server: RunningServer) -> None:
    for value, status in {"true": 200, "True": 200, "yes": 424, "1": 424}.items():
        answer = await server.post("/invocations", {"inputs": "Hey", "parameters": {"return_full_text": value}})
        assert (answer.status, b'"generated_text": "Hey' in answer.body) == (status, status == 200), answer.body
    for value in ("false", "False"):
        answer = await server.post("/v1/chat/completions", CHAT | {"stream": value})
        assert (answer.status, answer.content_type) == (200, "application/json")
    answer = await server.post("/v1/chat/completions", CHAT | {"stream": "true"})
    assert (answer.status, answer.content_type) == (200, "text/event-stream")

"""Errors in Anthropic's form, how a model is chosen, and golden transcripts."""

import asyncio
from typing import Any

import pytest

from lmi_plugins.backends.scripted import Script
from tests import golden
from tests.conftest import SCRIPTED, Answer, ModelDirectory, RunningServer, Serve
from tests.handlers.anthropic.asking import COUNT, PATH, ask, message

ADAPTER = """\
from djl_python.output_formatter import output_formatter

@output_formatter
def f(response_data: dict) -> dict:
    return {"by": "french"}
"""


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


def read_error(answer: Answer) -> tuple[int, str, str]:
    """Return the status, and the type and the message of the error, which has the form of Anthropic's."""
    content = answer.json()
    assert (answer.content_type, content["type"]) == ("application/json", "error")
    assert content.keys() == {"type", "error", "request_id"}
    assert content["request_id"] == answer.headers["request-id"] == answer.headers["x-request-id"]
    return answer.status, content["error"]["type"], content["error"]["message"]


@pytest.mark.parametrize("path", [PATH, COUNT])
async def test_wrong_requests(server: RunningServer, path: str) -> None:
    no_model = (404, "not_found_error", "model `mudel` is not served. Did you mean `model`? Served: model")
    assert read_error(await ask(server, path, model="mudel")) == no_model
    no_json = read_error(await server.post(path, data=b"{"))
    assert no_json[:2] == (400, "invalid_request_error")
    assert no_json[2].startswith("the body is not valid JSON")
    assert read_error(await server.post(path, data=b"[]"))[2] == "the body must be a JSON object. Given: []"


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("POST", "/v1/messages/batches", 404, "not_found_error"),
        ("GET", "/v1/messages/batches/one", 404, "not_found_error"),
        ("GET", "/v1/messages", 405, "invalid_request_error"),
        ("GET", "/v1/messages/count_tokens", 405, "invalid_request_error"),
    ],
)
async def test_unknown_routes(server: RunningServer, method: str, path: str, status: int, kind: str) -> None:
    async with server.client.request(method, path) as response:
        answer = Answer(response.status, response.headers, await response.read())
    assert read_error(answer)[:2] == (status, kind)


@pytest.mark.parametrize(
    ("option", "status", "kind"),
    [
        ("", 529, "overloaded_error"),
        ("throttle_error_http_code=429\n", 429, "rate_limit_error"),
        ("throttle_error_http_code=503\n", 503, "overloaded_error"),
    ],
)
async def test_full_queue(serve: Serve, model_dir: ModelDirectory, option: str, status: int, kind: str) -> None:
    properties = f"{SCRIPTED}job_queue_size=1\noption.max_rolling_batch_size=1\n{option}"
    server = await serve(model_dir({"serving.properties": properties}))
    scripts = [Script("one", hold=True), Script("one", hold=True)]
    server.scripted.enqueue(*scripts)
    waiting = [asyncio.create_task(ask(server)) for _ in scripts]
    await asyncio.gather(*(script.started.wait() for script in scripts))
    answer = await ask(server)
    assert read_error(answer)[:2] == (status, kind)
    assert answer.headers["Retry-After"] == "1"
    assert (await ask(server, COUNT)).status == 200  # it takes no place in the queue
    for task in waiting:
        task.cancel()
    await asyncio.gather(*(script.closed.wait() for script in scripts))


async def test_body_over_the_limit(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "max_request_size=1000\n"}))
    assert read_error(await server.post(PATH, data=b"x" * 1001))[:2] == (413, "request_too_large")


async def test_failure_before_anything_was_sent(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one", error="no memory"))
    assert read_error(await ask(server)) == (500, "api_error", "no memory")


async def test_adapters_and_models_by_name(serve: Serve, model_dir: ModelDirectory) -> None:
    files = {"serving.properties": SCRIPTED + "option.served_model_name=uno\n", "adapters/french/model.py": ADAPTER}
    one = model_dir(files, "store/one")
    model_dir({"serving.properties": SCRIPTED + "option.scripted_text=two\n"}, "store/two")
    server = await serve(one.parent)
    assert (await message(server, model="two"))["content"][0]["text"] == "two"
    assert (await message(server, model="uno"))["model"] == "uno"
    assert await message(server, model="french") == {"by": "french"}
    assert (await ask(server, COUNT, model="french")).status == 200
    assert read_error(await ask(server, model=...))[:2] == (404, "not_found_error")


def dialect(prompt: str, parameters: dict[str, Any], form: str) -> tuple[str, object]:
    fields = {("max_tokens" if name == "max_new_tokens" else name): value for name, value in parameters.items()}
    messages = [{"role": "user", "content": prompt}]
    return PATH, {"model": "model", "max_tokens": 64, "messages": messages, "stream": form == "stream"} | fields


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("form", golden.FORMS)
async def test_golden_transcript(server: RunningServer, form: str, case: str) -> None:
    await golden.replay(server, "anthropic", dialect, form, case)

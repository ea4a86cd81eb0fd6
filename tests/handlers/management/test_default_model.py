"""The model of a request that names none in its path, on servers of one model and of several."""

from urllib.parse import urlencode

import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.management.asking import ask, register

BODY = {"inputs": "Hello"}
TARGET = "X-Amzn-SageMaker-Target-Model"


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    """Start a server of a model `one`, to which a model `two` is added, and a version of that."""
    texts = {name: f"{SCRIPTED}option.scripted_text={name}\n" for name in ("one", "two", "newer")}
    one, two, newer = (model_dir({"serving.properties": text}, name) for name, text in texts.items())
    server = await serve(one)
    for directory, version in ((two, "1"), (newer, "2")):
        answer = await register(server, directory, model_name="two", model_version=version)
        assert answer.status == 200
    return server


async def answer_text(
    server: RunningServer, *, headers: dict[str, str] | None = None, body: dict[str, str] | None = None, **query: str
) -> str:
    answer = await server.post(f"/invocations?{urlencode(query)}", BODY | (body or {}), headers=headers)
    return str(answer.json().get("generated_text", answer.status))


async def test_the_model_of_the_start_remains_the_default(server: RunningServer) -> None:
    assert await answer_text(server) == "one"
    assert (await server.post("/v1/completions", {"prompt": "Hello"})).json()["choices"][0]["text"] == "one"
    assert await answer_text(server, body={"model": "two"}) == "two"
    assert await answer_text(server, body={"model": "three"}) == "404"


async def test_names_in_the_query_and_in_headers(server: RunningServer) -> None:
    assert await answer_text(server, model_name="two") == "two"
    assert await answer_text(server, headers={"model_name": "two"}) == "two"
    assert await answer_text(server, headers={"model_name": "one"}, model_name="two") == "two"
    assert await answer_text(server, headers={TARGET: "two"}) == "two"
    assert await answer_text(server, headers={TARGET: "three"}) == "404"
    assert await answer_text(server, model_name="three") == "404"


async def test_versions_in_the_query_and_in_headers(server: RunningServer) -> None:
    assert await answer_text(server, model_name="two", model_version="2") == "newer"
    assert await answer_text(server, headers={"model_version": "2"}, model_name="two") == "newer"
    assert await answer_text(server, model_name="two", model_version="3") == "404"


async def test_the_only_model_ignores_sagemakers_header(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.scripted_text=one\n"}))
    assert await answer_text(server, headers={TARGET: "model.tar.gz"}) == "one"
    assert await answer_text(server, headers={"model_name": "other"}) == "404"
    assert (await server.post("/predictions/other", BODY, headers={TARGET: "other"})).status == 404


async def test_without_the_model_of_the_start_there_is_no_default(server: RunningServer) -> None:
    assert (await ask(server, "DELETE", "/models/one")).status == 200
    assert await answer_text(server) == "two"  # the only one now
    assert await answer_text(server, headers={TARGET: "one"}) == "404"  # it may mean the one that was removed


HANDLE = """\
from djl_python import Input, Output

def handle(inputs):
    return None if inputs.is_empty() else Output().add_as_json({"bytes": len(inputs.get_as_bytes())})
"""


async def test_body_that_is_no_json_is_for_the_model_of_the_start(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": HANDLE}, "function"))
    assert (await register(server, model_dir({"serving.properties": SCRIPTED}, "other"))).status == 200
    headers = {"Content-Type": "image/jpeg"}
    async with server.client.post("/invocations", data=b"\xff\xd8", headers=headers) as answer:
        assert (answer.status, await answer.json()) == (200, {"bytes": 2})

"""Embeddings on LMI's routes, as a text embedding model answers there."""

from typing import Any

import pytest

from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

PATHS = ["/invocations", "/predictions/model", "/endpoints/mine/invocations"]

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share


server = module_server(f"{SCRIPTED}option.task=text-embedding\n")


@same_loop
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("further", [{}, {"messages": None}])
async def test_one_text(server: RunningServer, path: str, further: dict[str, Any]) -> None:
    answer = await server.post(path, {"inputs": "one two three", **further})
    assert (answer.status, answer.content_type) == (200, "application/json")
    count, *others = answer.json()
    assert (count, len(others)) == (3, 3)


@same_loop
@pytest.mark.parametrize("path", PATHS)
async def test_several_texts(server: RunningServer, path: str) -> None:
    answer = await server.post(path, {"inputs": ["one two three", "one"]})
    assert [vector[0] for vector in answer.json()] == [3, 1]
    assert [vector[0] for vector in (await server.post(path, {"inputs": ["one"]})).json()] == [1]


@same_loop
async def test_plain_text(server: RunningServer) -> None:
    answer = await server.post("/invocations", data=b"one two", headers={"Content-Type": "text/plain"})
    assert answer.json()[0] == 2


@same_loop
async def test_fields(server: RunningServer) -> None:
    backend = server.model.backend
    assert isinstance(backend, ScriptedBackend)
    body = {
        "inputs": "a " * 3000,
        "normalize": False,
        "dimensions": 2,
        "truncate": True,
        "truncation_direction": "Left",
    }
    answer = await server.post("/invocations", body)
    assert (answer.status, len(answer.json())) == (200, 2)
    assert len(backend.embedded[-1].prompt_ids) == 2048
    assert backend.embedded[-1].normalize is False


@same_loop
@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({}, 424, "`inputs` is required"),
        ({"inputs": []}, 424, "`inputs"),
        ({"inputs": ["a", ""]}, 424, "`inputs.1` must contain at least one token. Given: 0"),
        ({"inputs": "a " * 3000}, 424, "`inputs` must be at most 2048 tokens long. Given: 3001"),
        ({"inputs": "a", "prompt_name": "query"}, 424, "`prompt_name` must be null: no prompt is added"),
        ({"inputs": "a", "model": "other"}, 404, "`model` must be model, or be omitted. Given: 'other'"),
        (
            {"messages": [{"role": "user", "content": "Hi"}]},
            404,
            "model `model` makes embeddings and generates no text",
        ),
    ],
)
async def test_wrong_requests(server: RunningServer, body: dict[str, Any], status: int, message: str) -> None:
    answer = await server.post("/invocations", body)
    assert (answer.status, answer.json()["code"]) == (status, status)
    assert answer.json()["error"].startswith(message), answer.body


@same_loop
async def test_unknown_fields(server: RunningServer) -> None:
    answer = await server.post("/invocations", {"inputs": "a", "parameters": {"temperature": 1}})
    assert (answer.status, answer.headers["X-Lmi-Ignored-Parameters"]) == (200, "parameters")


async def test_input_formatter(serve: Serve, model_dir: ModelDirectory) -> None:
    script = """\
from djl_python.input_parser import input_formatter

@input_formatter
def read(decoded_payload: dict, tokenizer=None, **kwargs) -> dict:
    return {"inputs": "query: " + decoded_payload["q"]}
"""
    files = {"serving.properties": f"{SCRIPTED}option.task=text-embedding\n", "model.py": script}
    server = await serve(model_dir(files))
    answer = await server.post("/invocations", {"q": "one two"})
    assert answer.json()[0] == 3, answer.body

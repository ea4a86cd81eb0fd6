"""Ollama's vectors of texts over HTTP, on the scripted backend, and with the real client."""

import pytest
from ollama import AsyncClient

from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share


server = module_server(SCRIPTED + "option.task=text-embedding\n")


@same_loop
async def test_client(server: RunningServer) -> None:
    async with AsyncClient(server.server.url) as client:
        several = await client.embed("model:latest", ["one two", "one"])
        single = await client.embed("model", "one two")
        older = await client.embeddings("model", "one two")
    assert several.embeddings[:1] == single.embeddings == [older.embedding]
    backend = server.model.backend
    assert isinstance(backend, ScriptedBackend)
    assert [each.normalize for each in backend.embedded[-4:]] == [True, True, True, False]  # as Ollama has it
    assert (several.model, several.prompt_eval_count, single.prompt_eval_count) == ("model:latest", 3, 2)
    assert several.total_duration is not None
    assert several.total_duration > 0


@same_loop
async def test_texts_that_are_too_long_are_cut_unless_they_are_an_error(server: RunningServer) -> None:
    text = "word " * 5000
    assert (await server.post("/api/embed", {"input": text})).status == 200
    answer = await server.post("/api/embed", {"input": ["one", text], "truncate": False})
    assert answer.status == 400
    assert answer.json()["error"].startswith("`input.1` must be at most ")


@same_loop
@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("embed", {"input": 5}, 400, "`input` must be "),
        ("embeddings", {"prompt": 5}, 400, "`prompt` must be "),
        ("embed", {"input": "x", "keep_alive": "soon"}, 400, "`keep_alive` must be "),
        ("embed", {"model": "other", "input": "x"}, 404, "model 'other' not found"),
        ("embed", {"input": "x", "dimensions": 100_000}, 400, "`dimensions` must be "),
    ],
)
async def test_refused(server: RunningServer, path: str, body: dict[str, object], status: int, message: str) -> None:
    answer = await server.post(f"/api/{path}", body)
    assert (answer.status, answer.json()["error"][: len(message)]) == (status, message)


@same_loop
@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("embed", {}, {"model": "model", "embeddings": []}),
        ("embed", {"input": ""}, {"model": "model", "embeddings": []}),
        ("embed", {"input": []}, {"model": "model", "embeddings": []}),
        ("embeddings", {}, {"embedding": []}),
        ("embeddings", {"prompt": ""}, {"embedding": []}),
    ],
)
async def test_without_a_text(
    server: RunningServer, path: str, body: dict[str, object], expected: dict[str, object]
) -> None:
    answer = await server.post(f"/api/{path}", {"model": "model", "keep_alive": "5m", **body})
    assert (answer.status, answer.json()) == (200, expected)


@same_loop
async def test_no_dimensions(server: RunningServer) -> None:
    plain, of_none = [
        (await server.post("/api/embed", {"input": "x", **more})).json() for more in ({}, {"dimensions": 0})
    ]
    assert of_none["embeddings"] == plain["embeddings"]


@pytest.mark.parametrize("path", ["embed", "embeddings"])
async def test_model_that_only_generates(serve: Serve, model_dir: ModelDirectory, path: str) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    answer = await server.post(f"/api/{path}", {"model": "model", "input": "Hi", "prompt": "Hi"})
    assert answer.status == 400
    assert answer.json()["error"].startswith("this model does not support embeddings")


@same_loop
@pytest.mark.parametrize(("path", "body"), [("generate", {"prompt": "Hi"}), ("chat", {"messages": []})])
async def test_model_that_only_makes_vectors(server: RunningServer, path: str, body: dict[str, object]) -> None:
    answer = await server.post(f"/api/{path}", {"model": "model", **body})
    assert answer.status == 400  # a client would download the model after a 404
    assert answer.json()["error"].startswith(f'"model" does not support {path}')
    assert (await server.get("/api/tags")).json()["models"][0]["capabilities"] == ["embedding"]
    unloading = await server.post(f"/api/{path}", {"model": "model", "keep_alive": 0})
    assert (unloading.status, unloading.json()["done_reason"]) == (200, "unload")

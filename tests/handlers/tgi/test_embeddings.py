"""The routes of Text Embeddings Inference, on models that make vectors of texts."""

from typing import Any

import pytest
from huggingface_hub import AsyncInferenceClient

from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.module_server import module_server

same_loop = pytest.mark.asyncio(loop_scope="module")  # as that of the server that tests share

PATHS = ["/embed", "/"]


server = module_server(f"{SCRIPTED}option.task=text-embedding\n")


@same_loop
@pytest.mark.parametrize("path", PATHS)
async def test_a_text_gets_a_list_of_one_vector(server: RunningServer, path: str) -> None:
    answer = await server.post(path, {"inputs": "one two three"})
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert [vector[0] for vector in answer.json()] == [3]
    several = await server.post(path, {"inputs": ["one two three", "one"]})
    assert [vector[0] for vector in several.json()] == [3, 1]


@same_loop
@pytest.mark.parametrize("path", PATHS)
async def test_fields(server: RunningServer, path: str) -> None:
    backend = server.model.backend
    assert isinstance(backend, ScriptedBackend)
    await server.post(path, {"inputs": "one"})
    assert backend.embedded[-1].normalize is True  # as in TEI, whatever the model's files say
    assert (await server.post(path, {"inputs": "one", "model": "x"})).headers["X-Lmi-Ignored-Parameters"] == "model"
    await server.post(path, {"inputs": "one " + "a " * 3000, "truncate": True})
    assert backend.embedded[-1].prompt_ids[0] != backend.embedded[-1].prompt_ids[1]  # the end was cut
    cut = {"normalize": False, "dimensions": 2, "truncate": True, "truncation_direction": "Left"}
    answer = await server.post(path, {"inputs": "a " * 3000, **cut})
    assert (answer.status, [len(vector) for vector in answer.json()]) == (200, [2])
    assert len(backend.embedded[-1].prompt_ids) == 2048
    assert backend.embedded[-1].normalize is False


@same_loop
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "`inputs` is required"),
        ({"inputs": ["a", ""]}, "`inputs.1` must contain at least one token. Given: 0"),
        ({"inputs": "a " * 3000}, "`inputs` must be at most 2048 tokens long. Given: 3001"),
        ({"inputs": "a", "prompt_name": "query"}, "`prompt_name` must be null: no prompt is added"),
    ],
)
async def test_wrong_requests(server: RunningServer, path: str, body: dict[str, Any], message: str) -> None:
    answer = await server.post(path, body)
    assert (answer.status, answer.json()["error_type"]) == (422, "validation")
    assert answer.json()["error"].startswith(message), answer.body


@same_loop
async def test_routes_that_generate_are_refused(server: RunningServer) -> None:
    for path in ("/generate", "/generate_stream"):
        answer = await server.post(path, {"inputs": "a"})
        assert (answer.status, "generates no text" in answer.json()["error"]) == (404, True), path


@same_loop
async def test_client_of_hugging_face(server: RunningServer) -> None:
    async with AsyncInferenceClient(model=server.server.url) as client:
        vectors = await client.feature_extraction("one two three")
    assert vectors.shape == (1, 4)
    assert vectors[0][0] == 3


@pytest.mark.parametrize(
    ("task", "reason"), [("text-generation", "makes no embeddings"), ("reranking", "is a reranker")]
)
async def test_models_without_vectors(task: str, reason: str, model_dir: ModelDirectory, serve: Serve) -> None:
    other = await serve(model_dir({"serving.properties": f"{SCRIPTED}option.task={task}\n"}))
    answer = await other.post("/embed", {"inputs": "a"})
    assert (answer.status, reason in answer.json()["error"]) == (404, True), answer.body

"""Vectors from vLLM's pooling runner, over HTTP: those of transformers' hidden states."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from lmi_core.errors import GenerationFailed
from lmi_plugins.backends.vllm import VllmBackend
from tests.conftest import RunningServer, running_server
from tests.plugins.vllm_server import ONE_PROCESS, VllmServer

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

PROPERTIES = """\
option.rolling_batch=vllm
option.enforce_eager=true
option.dtype=fp32
option.task=text-embedding
option.matryoshka_dimensions=any
"""
SIZE = 128  # with heads of 32 numbers, the smallest that vLLM has on CPUs
CLOSE: dict[str, Any] = {"abs": 1e-5, "rel": 1e-4}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(vllm_environment: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    from tests.plugins.torch_engine.embeddings.encoders import save_encoder, save_recipe, write

    directory = tmp_path_factory.mktemp("vllm") / "encoder"
    save_encoder(directory, "bert", hidden_size=SIZE, initializer_range=0.1)
    save_recipe(directory, {"pooling_mode_mean_tokens": True}, length=40)
    write(directory / "config_sentence_transformers.json", {"prompts": {"query": "fox ", "none": None}})
    (directory / "serving.properties").write_text(PROPERTIES + ONE_PROCESS)
    async with running_server(directory) as running:
        yield running


async def embed(server: RunningServer, given: object, **fields: Any) -> list[list[float]]:
    answer = await server.post("/v1/embeddings", {"input": given, **fields})
    assert answer.status == 200, answer.body
    return [each["embedding"] for each in answer.json()["data"]]


async def test_vectors(server: RunningServer) -> None:
    from tests.plugins.torch_engine.embeddings.encoders import TEXTS, reference_states, unit

    directory = server.model.plan.directory
    for text, vector in zip(TEXTS, await embed(server, TEXTS), strict=True):
        ids = server.model.backend.tokenizer.encode(text)
        expected = reference_states(directory, ids).mean(0)
        assert vector == pytest.approx(unit(expected), **CLOSE)
        (alone,) = await embed(server, ids, normalize=False)
        assert alone == pytest.approx(expected.tolist(), **CLOSE)
        (cut,) = await embed(server, text, dimensions=8)
        assert cut == pytest.approx(unit(expected[:8]), **CLOSE)
    with_prompt = await server.post("/v2/embed", {"texts": ["dog"], "input_type": "query"})
    (expected_vector,) = await embed(server, "fox dog")
    assert with_prompt.json()["embeddings"]["float"] == [pytest.approx(expected_vector, **CLOSE)]
    assert (await server.post("/v2/embed", {"texts": ["dog"], "input_type": "none"})).status == 400
    assert (await server.post("/invocations", {"inputs": TEXTS})).json() == [
        pytest.approx(vector, **CLOSE) for vector in await embed(server, TEXTS)
    ]


async def test_many_requests_at_once(server: RunningServer) -> None:
    (expected,) = await embed(server, "fox")
    for vectors in await asyncio.gather(*(embed(server, ["fox", "the lazy dog", "fox"]) for _ in range(10))):
        assert vectors[0] == pytest.approx(expected, **CLOSE)
        assert vectors[2] == pytest.approx(expected, **CLOSE)


async def test_what_is_refused(server: RunningServer) -> None:
    for body, message in (
        ({"input": "fox " * 60}, "This model's maximum context length is 40 tokens. However, "),
        ({"input": "a", "dimensions": SIZE + 1}, f"`dimensions` must be from 1 to {SIZE}, the size of the vectors."),
    ):
        answer = await server.post("/v1/embeddings", body)
        assert answer.status == 400
        assert answer.json()["error"]["message"].startswith(message)
    chat = await server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})
    assert chat.status == 404
    assert "makes embeddings and generates no text" in chat.json()["error"]["message"]


async def test_client_that_leaves(server: RunningServer) -> None:
    backend = server.model.backend
    assert isinstance(backend, VllmBackend)
    running = VllmServer(server)
    asking = asyncio.create_task(embed(server, ["fox " * 10] * 400))
    await running.until(working=True)
    asking.cancel()
    await running.until(working=False)
    assert len(await embed(server, "a")) == 1


async def test_engine_that_fails(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = server.model.backend
    assert isinstance(backend, VllmBackend)
    assert backend._service is not None

    async def fails(*arguments: object) -> None:
        raise GenerationFailed("out of vectors")

    with monkeypatch.context() as patch:
        patch.setattr(backend._service._engine, "embed", fails)
        answer = await server.post("/v1/embeddings", {"input": ["a", "b"]})
        assert (answer.status, answer.json()["error"]["message"]) == (500, "out of vectors")
    assert len(await embed(server, "a")) == 1

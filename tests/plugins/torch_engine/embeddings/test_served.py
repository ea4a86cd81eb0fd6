"""Vectors over HTTP from the torch engine in its worker: of models that make nothing else, and of others."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lmi_plugins.backends.torch import TorchBackend
from tests.conftest import ModelDirectory, RunningServer, Serve, running_server
from tests.module_server import module_server
from tests.plugins.torch_engine.embeddings.encoders import (
    TEXTS,
    reference_states,
    save_encoder,
    save_recipe,
    unit,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

HELLO = Path(__file__).parents[4] / "examples" / "hello"
TORCH = "option.rolling_batch=torch\noption.device=cpu\n"
CLOSE: dict[str, Any] = {"abs": 1e-5, "rel": 1e-5}
CHAT = {"messages": [{"role": "user", "content": "What is Deep Learning?"}]}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def encoder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory = tmp_path_factory.mktemp("embeddings") / "encoder"
    save_encoder(directory, "xlm-roberta")
    save_recipe(directory, {"pooling_mode_mean_tokens": True}, length=40)
    (directory / "serving.properties").write_text(TORCH + "option.matryoshka_dimensions=8, 16\n")
    async with running_server(directory) as server:
        yield server


hello = module_server(f"{TORCH}option.model_id={HELLO}\n", "hello")


def backend(server: RunningServer) -> TorchBackend:
    found = server.model.backend
    assert isinstance(found, TorchBackend)
    return found


async def embed(server: RunningServer, given: object, **fields: Any) -> list[list[float]]:
    answer = await server.post("/v1/embeddings", {"input": given, **fields})
    assert answer.status == 200, answer.body
    return [each["embedding"] for each in answer.json()["data"]]


async def test_encoder(encoder: RunningServer) -> None:
    directory = encoder.model.plan.directory
    for text, vector in zip(TEXTS, await embed(encoder, TEXTS), strict=True):
        ids = encoder.model.backend.tokenizer.encode(text)
        assert (ids[0], ids[-1]) == (0, 1)
        expected = unit(reference_states(directory, ids).mean(0))
        assert vector == pytest.approx(expected, **CLOSE)
        assert (await embed(encoder, ids))[0] == pytest.approx(expected, **CLOSE)


async def test_encoder_on_lmi_s_route(encoder: RunningServer) -> None:
    answer = await encoder.post("/invocations", {"inputs": TEXTS})
    assert answer.json() == await embed(encoder, TEXTS)


async def test_smaller_vectors(encoder: RunningServer) -> None:
    (whole,) = await embed(encoder, "a", normalize=False)
    (cut,) = await embed(encoder, "a", dimensions=8)
    import torch

    assert cut == pytest.approx(unit(torch.tensor(whole[:8])), **CLOSE)
    refused = await encoder.post("/v1/embeddings", {"input": "a", "dimensions": 9})
    assert "must be one of 8, 16, 32" in refused.json()["error"]["message"]


async def test_too_long_an_input(encoder: RunningServer) -> None:
    answer = await encoder.post("/v1/embeddings", {"input": "fox " * 100})
    assert answer.status == 400
    assert answer.json()["error"]["message"].startswith("This model's maximum context length is 40 tokens. However, ")
    assert len(await embed(encoder, "fox " * 100, truncate_prompt_tokens=-1)) == 1


async def test_encoder_generates_nothing(encoder: RunningServer) -> None:
    answer = await encoder.post("/v1/chat/completions", CHAT)
    assert answer.status == 404
    assert "makes embeddings and generates no text" in answer.json()["error"]["message"]
    (card,) = (await encoder.get("/v1/models")).json()["data"]
    assert card["max_model_len"] == 40


async def test_many_requests_at_once(encoder: RunningServer) -> None:
    expected = await embed(encoder, TEXTS)
    answers = await asyncio.gather(*(embed(encoder, TEXTS * 3) for _ in range(8)))
    for answer in answers:
        for vector, own in zip(answer, expected * 3, strict=True):
            assert vector == pytest.approx(own, **CLOSE)


async def test_client_that_leaves(encoder: RunningServer) -> None:
    asking = asyncio.create_task(embed(encoder, ["fox " * 10] * 500))
    while not backend(encoder).engine.in_flight:
        await asyncio.sleep(0)
    asking.cancel()
    while backend(encoder).engine.in_flight:
        await asyncio.sleep(0)
    assert len(await embed(encoder, "a")) == 1


async def test_model_that_generates_too(hello: RunningServer) -> None:
    ids = hello.model.backend.tokenizer.encode(TEXTS[1])
    (vector,) = await embed(hello, TEXTS[1])
    assert vector == pytest.approx(unit(reference_states(HELLO, ids)[-1]), **CLOSE)
    answer = await hello.post("/invocations", {"inputs": "What is Deep Learning?"})
    assert answer.json() == {"generated_text": "Deep Learning is a really cool field."}


async def test_vectors_beside_streams(hello: RunningServer) -> None:
    """Neither changes the other."""
    alone = (
        await hello.post("/v1/completions", {"prompt": "Tell me a story.", "max_tokens": 60, "temperature": 0})
    ).json()
    expected = await embed(hello, TEXTS)

    async def story() -> Any:
        body = {"prompt": "Tell me a story.", "max_tokens": 60, "temperature": 0}
        return (await hello.post("/v1/completions", body)).json()["choices"][0]["text"]

    vectors, *stories = await asyncio.gather(embed(hello, TEXTS * 20), *(story() for _ in range(4)))
    assert set(stories) == {alone["choices"][0]["text"]}
    for vector, own in zip(vectors, expected * 20, strict=True):
        assert vector == pytest.approx(own, **CLOSE)


async def test_worker_that_dies(hello: RunningServer) -> None:
    asking = asyncio.create_task(hello.post("/v1/embeddings", {"input": ["fox " * 200] * 500}))
    while not backend(hello).engine.in_flight:
        await asyncio.sleep(0)
    process_id = backend(hello).engine.replicas.first.process_id
    assert process_id is not None
    os.kill(process_id, signal.SIGKILL)
    answer = await asking  # from the next worker
    assert answer.status == 200
    while (await hello.get("/ping")).status != 200:
        await asyncio.sleep(0.05)
    assert len(await embed(hello, "a")) == 1


@pytest.mark.asyncio(loop_scope="function")
async def test_a_causal_model_told_to_make_vectors(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = f"{TORCH}option.model_id={HELLO}\noption.task=text-embedding\noption.normalize=false\n"
    server = await serve(model_dir({"serving.properties": properties}))
    ids = server.model.backend.tokenizer.encode(TEXTS[1])
    (vector,) = await embed(server, TEXTS[1])
    assert vector == pytest.approx(reference_states(HELLO, ids)[-1].tolist(), **CLOSE)
    assert (await server.post("/v1/completions", {"prompt": "a"})).status == 404

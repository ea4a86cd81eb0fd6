"""Scores from vLLM's pooling runner, over HTTP: those of transformers' classifiers."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.conftest import RunningServer, running_server
from tests.plugins.vllm_server import ONE_PROCESS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

PROPERTIES = "option.rolling_batch=vllm\noption.enforce_eager=true\noption.dtype=fp32\n"
SIZE = 128  # with heads of 32 numbers, the smallest that vLLM has on CPUs
CLOSE: dict[str, Any] = {"abs": 1e-5, "rel": 1e-4}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(vllm_environment: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    from tests.plugins.torch_engine.embeddings.test_scores import save_classifier

    directory = tmp_path_factory.mktemp("vllm") / "reranker"
    save_classifier(directory, "bert", hidden_size=SIZE, initializer_range=0.1)
    (directory / "serving.properties").write_text(PROPERTIES + ONE_PROCESS)
    async with running_server(directory) as running:
        yield running


async def test_scores(server: RunningServer) -> None:
    from tests.plugins.torch_engine.embeddings.test_scores import DOCUMENTS, QUERY, logits, sigmoid

    expected = [logits(server.model.plan.directory, QUERY, document) for document in DOCUMENTS]
    for fields, wanted in (({"use_activation": False}, expected), ({}, [sigmoid(each) for each in expected])):
        answer = await server.post("/score", {"text_1": QUERY, "text_2": DOCUMENTS, **fields})
        assert answer.status == 200, answer.body
        assert [each["score"] for each in answer.json()["data"]] == pytest.approx(wanted, **CLOSE)


async def test_what_is_refused(server: RunningServer) -> None:
    answer = await server.post("/v1/embeddings", {"input": "a"})
    assert answer.status == 404
    assert "is a reranker, which scores pairs of texts and makes no embeddings" in answer.json()["error"]["message"]

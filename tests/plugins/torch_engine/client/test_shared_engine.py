"""Two servers, here in one process, share an engine."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from lmi_core.embedding_backend import Vector
from lmi_core.errors import GenerationFailed
from lmi_core.workers import supervisor
from lmi_core.workers.shared_worker import HOST_VARIABLE
from lmi_core.workers.worker_host import WorkerHost
from lmi_plugins.torch_engine.client import client as torch_client
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.messages.embeddings import EmbeddingInput
from lmi_plugins.torch_engine.messages.requests import EngineOptions, SamplingParameters
from tests.plugins.torch_engine.poisoned_worker import POISON, TORCH, importable_in_workers
from tests.plugins.torch_engine.tiny_models import save_model, save_tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [5, 6, 7]
TOKENS = 100

Clients = tuple[EngineClient, EngineClient]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "shared"
    save_tokenizer(directory)
    save_model(directory, "llama")
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clients(directory: Path) -> AsyncIterator[Clients]:
    with importable_in_workers() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(supervisor, "FIRST_DELAY", 0.01)
        patch.setattr(torch_client, "TARGET", TORCH)
        host = WorkerHost(Path(folder))
        await host.start()
        patch.setenv(HOST_VARIABLE, str(host.address))
        options = EngineOptions(str(directory))
        first, second = (EngineClient(options, retry_threshold=3, resume=True) for _ in range(2))
        await first.start()
        await second.start()
        yield first, second
        await first.stop()
        await second.stop()
        await host.stop()


async def generated(client: EngineClient, prompt: list[int] = PROMPT, begun: asyncio.Event | None = None) -> list[int]:
    token_ids: list[int] = []
    async with aclosing(client.generate(prompt, SamplingParameters(max_new_tokens=TOKENS))) as steps:
        async for step in steps:
            token_ids += [token.id for token in step.tokens]
            if begun is not None:
                begun.set()
    return token_ids


async def vectors(client: EngineClient) -> list[Vector]:
    return [each async for each in client.embed([EmbeddingInput(PROMPT)])]


async def test_both_get_their_own_answers(clients: Clients) -> None:
    first, second = clients
    assert first.replicas.process_ids == second.replicas.process_ids
    answers = await asyncio.gather(*(generated(each, [9, number]) for number in (3, 4) for each in clients))
    assert answers[0] == answers[1] != answers[2] == answers[3]
    assert await vectors(first) == await vectors(second)


async def test_requests_of_both_outlive_the_engine(clients: Clients) -> None:
    first, second = clients
    expected = await generated(first)
    begun = [asyncio.Event(), asyncio.Event()]
    answers = [asyncio.create_task(generated(*each)) for each in zip(clients, (PROMPT, PROMPT), begun, strict=True)]
    await asyncio.gather(*(each.wait() for each in begun))
    (process_id,) = first.replicas.process_ids
    os.kill(process_id, signal.SIGKILL)
    assert await asyncio.gather(*answers) == [expected, expected]
    assert [*first.replicas.process_ids] == [*second.replicas.process_ids] != [process_id]


async def test_a_request_that_breaks_the_engine_breaks_no_request_of_another_server(clients: Clients) -> None:
    """Both servers have one request each, and neither can know that its own is innocent."""
    first, second = clients
    expected = await generated(second)
    begun = asyncio.Event()
    innocent = asyncio.create_task(generated(second, PROMPT, begun))
    await begun.wait()
    with pytest.raises(GenerationFailed, match="it is not tried again"):
        await generated(first, POISON)
    assert await innocent == expected

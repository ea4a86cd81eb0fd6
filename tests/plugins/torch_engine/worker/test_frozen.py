"""A worker that is stopped is found and replaced; one that is busy or idle is not."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lmi_core.errors import GenerationFailed
from lmi_core.workers import supervisor
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.messages.requests import EngineOptions, SamplingParameters
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import CONTEXT

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMEOUT = 5.0  # seconds, of which a busy machine takes none from a worker that is alive
PROMPT = [5, 6, 7]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(model_directory: ModelDirectory) -> AsyncIterator[EngineClient]:
    client = EngineClient(EngineOptions(str(model_directory("llama"))), retry_threshold=3, heartbeat_timeout=TIMEOUT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "FIRST_DELAY", 0.01)
        await client.start()
        yield client
        await client.stop()


async def until_replaced(client: EngineClient, process_id: int) -> None:
    async with asyncio.timeout(120):
        while client.replicas.first.process_id in (None, process_id):
            await asyncio.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


async def test_an_idle_worker_is_left_alone_and_a_stopped_one_replaced(client: EngineClient) -> None:
    idle = client.replicas.first.process_id
    assert idle is not None
    await asyncio.sleep(1.4 * TIMEOUT)  # in which it answers
    assert client.replicas.first.process_id == idle
    os.kill(idle, signal.SIGSTOP)
    await until_replaced(client, idle)


async def test_a_worker_that_is_stopped_under_a_request_is_killed(client: EngineClient) -> None:
    stopped = client.replicas.first.process_id
    assert stopped is not None
    steps = client.generate(PROMPT, SamplingParameters(max_new_tokens=CONTEXT))
    await anext(steps)
    os.kill(stopped, signal.SIGSTOP)
    with pytest.raises(
        GenerationFailed, match=r"lost: the worker gave no sign of life for 5 seconds .* and was killed"
    ):
        async for _ in steps:
            pass
    await until_replaced(client, stopped)
    answer = [token async for step in client.generate(PROMPT, SamplingParameters()) for token in step.tokens]
    assert len(answer) == 30

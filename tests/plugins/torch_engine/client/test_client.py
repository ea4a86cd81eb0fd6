"""The engine in its worker process, from the server's side."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio

from lmi_core.errors import BackendUnhealthy, ConfigurationError, GenerationFailed, InvalidParameter
from lmi_core.generation import coalescing
from lmi_core.generation.coalescing import OutputCoalescing
from lmi_core.generation.output import GenerationStep
from lmi_core.workers import supervisor
from lmi_core.workers.local_process import LocalProcess
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.client.engine_worker import EngineWorker
from lmi_plugins.torch_engine.engine.engine import Engine
from lmi_plugins.torch_engine.messages.protocol import Steps, failure
from lmi_plugins.torch_engine.messages.requests import EngineOptions, SamplingParameters
from lmi_plugins.torch_engine.messages.results import StepFailed
from tests.plugins.torch_engine.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import CONTEXT, ids, request, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = [5, 6, 7]
LONG = SamplingParameters(max_new_tokens=CONTEXT)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(model_directory: ModelDirectory) -> AsyncIterator[EngineClient]:
    client = EngineClient(EngineOptions(str(model_directory("llama")), threads=2), retry_threshold=3)
    await client.start()
    assert client.max_length == CONTEXT
    yield client
    process_id = client.replicas.first.process_id
    assert process_id is not None
    await client.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process_id, 0)


async def generated(client: EngineClient, parameters: SamplingParameters) -> list[int]:
    return [token.id async for step in client.generate(PROMPT, parameters) for token in step.tokens]


async def test_same_tokens_as_the_engine(client: EngineClient, engine: Engine) -> None:
    parameters = [SamplingParameters(max_new_tokens=count) for count in (1, 7, 20)]
    answers = await asyncio.gather(*(generated(client, each) for each in parameters))
    for count, answer in zip((1, 7, 20), answers, strict=True):
        assert answer == ids(run(engine, request("alone", PROMPT, max_new_tokens=count))["alone"])


async def test_a_refused_request_fails_alone(client: EngineClient) -> None:
    going = asyncio.create_task(generated(client, SamplingParameters(max_new_tokens=20)))
    with pytest.raises(InvalidParameter, match="vocabulary"):
        await anext(client.generate([10**6], LONG))
    assert len(await going) == 20


async def test_closing_aborts(client: EngineClient) -> None:
    async with aclosing(client.generate(PROMPT, LONG)) as steps:
        assert isinstance(await anext(steps), GenerationStep)
    assert client.in_flight == 0
    assert len(await generated(client, SamplingParameters(max_new_tokens=5))) == 5


async def test_under_load_tokens_gather(client: EngineClient, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client.replicas.first, "_coalescing", OutputCoalescing(1.0))
    monkeypatch.setattr(coalescing, "MAX_UNDELAYED_STREAMS", 0)
    monkeypatch.setattr(coalescing, "SECONDS_PER_STREAM", 1)  # as of many
    steps = [step async for step in client.generate(PROMPT, SamplingParameters(max_new_tokens=40))]
    assert len(steps) > 1  # the first token waits for nothing: otherwise, all would come together
    assert max(len(step.tokens) for step in steps) > 1
    tokens = [token.id for step in steps for token in step.tokens]
    assert tokens == ids(run(engine, request("alone", PROMPT, max_new_tokens=40))["alone"])
    assert [step.finish_reason for step in steps] == [None] * (len(steps) - 1) + ["length"]


async def test_a_killed_worker_fails_its_requests_and_is_replaced(client: EngineClient) -> None:
    killed = client.replicas.first.process_id
    assert killed is not None
    steps = client.generate(PROMPT, LONG)
    await anext(steps)
    os.kill(killed, signal.SIGSTOP)  # so that it does not finish before it is killed
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(GenerationFailed, match="the request was lost: the worker ended with exit code -9"):
        async for _ in steps:
            pass
    with pytest.raises(BackendUnhealthy, match="is being restarted"):
        client.replicas.check_health()
    with pytest.raises(BackendUnhealthy):
        await anext(client.generate(PROMPT, LONG))
    await until_healthy(client)
    assert client.replicas.first.process_id != killed
    assert len(await generated(client, SamplingParameters(max_new_tokens=5))) == 5


async def until_healthy(client: EngineClient) -> None:
    async with asyncio.timeout(60):
        while client.replicas.first.process_id is None:
            await asyncio.sleep(0.05)


async def test_a_worker_that_cannot_be_replaced_is_given_up(
    model_directory: ModelDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.01)
    directory = tmp_path / "model"
    directory.symlink_to(model_directory("llama"))
    client = EngineClient(EngineOptions(str(directory)), retry_threshold=1)
    await client.start()
    try:
        directory.unlink()
        assert client.replicas.first.process_id is not None
        os.kill(client.replicas.first.process_id, signal.SIGKILL)
        async with asyncio.timeout(60):
            while not client.replicas.first.restarts.given_up.is_set():
                await asyncio.sleep(0.05)
        with pytest.raises(
            BackendUnhealthy, match="the engine died and is not restarted again, after 1 consecutive restarts"
        ):
            client.replicas.check_health()
    finally:
        await client.stop()


async def test_a_worker_that_only_fails_has_not_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.0)
    client = EngineWorker(EngineOptions("nowhere"), 1, 0, 0, OutputCoalescing(0), partial(LocalProcess, ""))
    started = AsyncMock(return_value=True)
    assert await client.restarts.attempt(started)
    client._deliver(Steps([], [failure("1", StepFailed("poisoned"))]))
    assert await client.restarts.attempt(started) is None
    client._deliver(Steps([("1", GenerationStep([]))], []))
    assert await client.restarts.attempt(started)


async def test_a_directory_that_cannot_be_loaded(tmp_path: Path) -> None:
    client = EngineClient(EngineOptions(str(tmp_path)), retry_threshold=1)
    with pytest.raises(ConfigurationError, match="there is no tokenizer"):
        await client.start()
    await client.stop()

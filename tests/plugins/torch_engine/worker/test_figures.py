"""What the torch engine tells of itself, from its worker process to the server."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
from transformers import AutoConfig, AutoModelForCausalLM

from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers import supervisor
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.messages.requests import EngineOptions, SamplingParameters
from tests.plugins.torch_engine.tiny_models import LLAMA, save_tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPT = list(range(5, 45))
CONTEXT = 20_000
ENDLESS = SamplingParameters(max_new_tokens=CONTEXT, ignore_end=True)  # for longer than it takes to be told of


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EngineClient]:
    directory = tmp_path_factory.mktemp("models") / "long"
    save_tokenizer(directory)
    factory: Any = AutoModelForCausalLM  # not typed
    config = AutoConfig.for_model("llama", **LLAMA | {"max_position_embeddings": CONTEXT})
    factory.from_config(config).save_pretrained(directory)
    client = EngineClient(
        EngineOptions(str(directory), max_batch_size=1, kv_cache_memory=50_000_000), retry_threshold=3
    )
    await client.start()
    yield client
    await client.stop()


async def figures_like(client: EngineClient, running: int, waiting: int) -> EngineFigures:
    """Wait until the worker has told of so many sequences, which it does some times a second."""
    async with asyncio.timeout(30):
        while ((found := client.replicas.figures).running, found.waiting) != (running, waiting):
            await asyncio.sleep(0.01)
    return found


async def test_running_waiting_and_the_cache(client: EngineClient) -> None:
    assert (await figures_like(client, 0, 0)).cache_usage == 0
    async with (
        aclosing(client.generate(PROMPT, ENDLESS)) as first,
        aclosing(client.generate(PROMPT, ENDLESS)) as second,
    ):
        begun = await anext(first)
        assert begun.queue_time is not None
        assert 0 <= begun.queue_time < 30
        assert (await anext(first)).queue_time is None  # told once
        waiting = asyncio.ensure_future(anext(second))
        usage = (await figures_like(client, 1, 1)).cache_usage
        assert usage is not None
        assert 0 < usage <= 1
        await first.aclose()
        queued = (await waiting).queue_time
        assert queued is not None
        assert queued > 0
    assert (await figures_like(client, 0, 0)).cache_usage == 0


async def test_counts_outlive_the_worker(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.01)

    async def ask() -> EngineFigures:
        """Return the figures with one more request of the same prompt."""
        looked_up = (client.replicas.figures.looked_up_tokens or 0) + len(PROMPT)
        async for _ in client.generate(PROMPT, SamplingParameters(max_new_tokens=1)):
            pass
        async with asyncio.timeout(60):
            while (found := client.replicas.figures).looked_up_tokens != looked_up:
                await asyncio.sleep(0.01)
        return found

    first = await ask()
    before = await ask()
    assert first.cached_tokens is not None
    assert before.cached_tokens is not None
    assert before.cached_tokens - first.cached_tokens == 32  # the full blocks of the prompt
    assert client.replicas.first.process_id is not None
    os.kill(client.replicas.first.process_id, signal.SIGKILL)
    async with asyncio.timeout(60):
        while client.replicas.figures.restarts == 0:
            await asyncio.sleep(0.05)
    after = await ask()
    assert (after.restarts, after.cached_tokens) == (1, before.cached_tokens)  # the new worker has nothing cached
    assert (await ask()).cached_tokens == before.cached_tokens + 32

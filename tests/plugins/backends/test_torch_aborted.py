"""Clients that leave the torch engine, at any point: its work for them ends, and nothing is kept."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio

from lmi_handlers.testing.servers import RunningServer, running_server
from lmi_plugins.backends.torch import TorchBackend
from lmi_plugins.torch_engine.client.client import EngineClient
from tests.handlers.http.aborted_streams import (
    Leave,
    growth_since,
    half_close,
    leave_streams,
    leave_within,
    measure,
    until_idle,
)
from tests.handlers.http.connections.raw_client import LIMIT, post, raw_client
from tests.plugins.torch_engine.tiny_models import LLAMA, save_model, save_tokenizer

pytestmark = pytest.mark.asyncio(loop_scope="module")

LENGTH = 1024
BLOCKS = LENGTH // 16 + 4
BLOCK_BYTES = 16 * LLAMA["num_hidden_layers"] * 2 * LLAMA["num_key_value_heads"] * 8 * 4  # float32 keys and values
PROPERTIES = f"""\
option.rolling_batch=torch
option.max_rolling_batch_size=4
option.max_rolling_batch_prefill_tokens=4
option.kv_cache_memory={BLOCKS * BLOCK_BYTES}
"""
COUNT, WARM_UP = 1000, 100
MEGABYTE = 1 << 20
TOKENS = 600
ENDLESS: dict[str, Any] = {"max_new_tokens": TOKENS, "ignore_eos_token": True}


def streamed(inputs: str, **parameters: Any) -> bytes:
    return json.dumps({"inputs": inputs, "stream": True, "parameters": ENDLESS | parameters}).encode()


STREAMS = [
    ("/invocations", streamed("Hello")),
    ("/invocations", streamed("lazy dog " * 80, max_new_tokens=20)),
    ("/generate_stream", streamed("Hello", do_sample=True, seed=1)),
    ("/v1/completions", json.dumps({"prompt": "a", "n": 3, "max_tokens": 200, "stream": True}).encode()),
    ("/v1/completions", json.dumps({"prompt": ["a", "b"], "max_tokens": 200, "stream": True}).encode()),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    directory: Path = tmp_path_factory.mktemp("models") / "long"
    save_tokenizer(directory)
    save_model(directory, "llama")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"max_position_embeddings": LENGTH}))
    (directory / "serving.properties").write_text(PROPERTIES)
    async with running_server(directory) as running:
        await running.post("/invocations", data=streamed("Hello"))  # the first of all takes far more time
        yield running


def engine_of(server: RunningServer) -> EngineClient:
    backend = server.model.backend
    assert isinstance(backend, TorchBackend)
    return backend.engine


def worker_of(server: RunningServer) -> psutil.Process:
    process_id = engine_of(server).replicas.first.process_id
    assert process_id is not None
    return psutil.Process(process_id)


async def whole_cache(server: RunningServer) -> str:
    """Return an answer that is as long as the context, which nearly all blocks of the cache are needed for."""
    parameters = ENDLESS | {"max_new_tokens": LENGTH - 20}
    answer = await server.post("/invocations", {"inputs": "Hello world", "parameters": parameters})
    assert answer.status == 200, answer.body
    return str(answer.json()["generated_text"])


async def test_a_thousand_aborted_streams(server: RunningServer) -> None:
    expected, worker = await whole_cache(server), worker_of(server)
    await leave_streams(server, STREAMS, WARM_UP, seed=0)
    before, memory = await measure(), worker.memory_full_info().uss
    descriptors, threads = worker.num_fds(), worker.num_threads()
    await leave_streams(server, STREAMS, COUNT, seed=1)
    assert await growth_since(before) == {}
    assert engine_of(server).in_flight == 0
    assert worker_of(server).pid == worker.pid
    assert worker.num_fds() <= descriptors
    assert worker.num_threads() <= threads
    assert worker.memory_full_info().uss - memory < 20 * MEGABYTE
    assert await whole_cache(server) == expected


async def leave_in_prefill(server: RunningServer, path: str, body: bytes) -> None:
    """Leave once the engine has the request, whose prompt it reads for long."""
    async with raw_client(server) as client:
        await client.send(post(path, body))
        while not engine_of(server).in_flight:
            await asyncio.sleep(0.001)


async def seconds_of_work(server: RunningServer, leave: Leave | None, path: str, body: bytes) -> float:
    """Return the CPU time of the engine for a request that is left, or read whole where `leave` is None."""
    worker = worker_of(server)
    begun = sum(worker.cpu_times()[:2])
    if leave is None:
        answer = await server.post(path, data=body, headers={"Content-Type": "application/json"})
        assert answer.status == 200, answer.body
    else:
        await leave(server, path, body)
    await until_idle(server)
    # The next one waits for nothing of the one before, so that what is still done for it would count.
    answer = await server.post("/invocations", {"inputs": "a", "parameters": {"max_new_tokens": 1}})
    assert answer.status == 200
    return sum(worker.cpu_times()[:2]) - begun


SEVERAL = json.dumps({"prompt": "a", "n": 4, "max_tokens": 240, "ignore_eos": True, "stream": True}).encode()
PHASES = [
    pytest.param(leave_within, "/invocations", lambda _: streamed("Hello"), id="in decode"),
    pytest.param(
        leave_in_prefill, "/invocations", lambda i: streamed(f"{i} " + "zxq " * 229, max_new_tokens=5), id="in prefill"
    ),
    pytest.param(leave_within, "/v1/completions", lambda _: SEVERAL, id="several sequences"),
    pytest.param(half_close, "/invocations", lambda _: streamed("Hello"), id="half closed, as by a proxy"),
]
ATTEMPTS = 4  # as a busy machine may let the test leave late


@pytest.mark.parametrize(("leave", "path", "body"), PHASES)
async def test_the_work_for_one_that_left_ends(
    server: RunningServer, leave: Leave, path: str, body: Callable[[int], bytes]
) -> None:
    """`body` has a number in its prompt, where the prefix cache would otherwise have what another one computed."""
    whole = await seconds_of_work(server, None, path, body(0))
    for number in range(1, 1 + ATTEMPTS):
        left = await seconds_of_work(server, leave, path, body(number))
        assert engine_of(server).in_flight == 0
        if left < whole / 2:
            return
    pytest.fail(f"{left} s of work for one that left, {whole} s for one that did not")


async def test_one_that_waits_leaves_the_queue(server: RunningServer) -> None:
    """Four run as long as they can; those behind them leave, and the next one is served ahead of their turns."""
    ahead = [asyncio.create_task(server.post("/invocations", data=streamed("Hello"))) for _ in range(4)]
    engine = engine_of(server)
    async with asyncio.timeout(LIMIT):
        while engine.in_flight < len(ahead):
            await asyncio.sleep(0.001)
        queued = [asyncio.create_task(server.post("/invocations", data=streamed("Hello", seed=1))) for _ in range(8)]
        while engine.in_flight <= len(ahead):
            assert not any(each.done() for each in (*ahead, *queued)), (await ahead[0]).body
            await asyncio.sleep(0.001)
        for each in queued:
            each.cancel()
        await asyncio.wait(queued)
        while engine.in_flight > len(ahead):
            await asyncio.sleep(0.001)
    assert not all(each.done() for each in ahead)
    assert {(await each).status for each in ahead} == {200}
    await until_idle(server)

"""Guides of a few bytes that take minutes to compile or to follow, over HTTP on the torch engine."""

import asyncio
import io
import json
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from transformers import AutoConfig, AutoModelForCausalLM

from tests.conftest import Answer, RunningServer, running_server
from tests.plugins.costly_guides import (
    BOMBS,
    SERVER,
    SOON,
    eventually,
    forks,
    is_running,
    next_fork,
    optional_letters,
    processes,
)
from tests.plugins.torch_engine.tiny_models import LLAMA, save_tokenizer

MAX_GAP = 10.0  # seconds between two tokens of a neighbour, on a machine that does much else; it was 90 and more
LESS_THAN_COMPILING = 20.0  # 10,000 optional letters take longer on any machine


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    save_tokenizer(directory)
    factory: Any = AutoModelForCausalLM  # not typed
    config = AutoConfig.for_model("llama", **LLAMA | {"max_position_embeddings": 20_000})
    factory.from_config(config).save_pretrained(directory)
    (directory / "serving.properties").write_text(
        "option.rolling_batch=torch\noption.guide_compile_timeout=3\noption.kv_cache_memory=50000000\n"
    )
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(directory: Path) -> AsyncIterator[RunningServer]:
    async with running_server(directory) as server:
        yield server


async def ask(server: RunningServer, **parameters: Any) -> Answer:
    """Ask, and again where a guide's compiling made room for others, as happens on a machine that does much else."""
    while (answer := await _ask(server, **parameters)).status == 503:
        await asyncio.sleep(1)
    return answer


async def _ask(server: RunningServer, **parameters: Any) -> Answer:
    body = json.dumps({"inputs": "Hello", "parameters": {"max_new_tokens": 30} | parameters}).encode()
    headers = {"Content-Type": "application/json"}
    async with server.client.post("/invocations", data=io.BytesIO(body), headers=headers) as response:
        return Answer(response.status, response.headers, await response.read())


async def longest_gap(server: RunningServer, begun: asyncio.Event) -> float:
    """Return the longest time between two reads of a stream that is cancelled once it is no longer needed."""
    body = {
        "inputs": "Hello",
        "stream": True,
        "parameters": {"max_new_tokens": 19_000, "ignore_eos_token": True},
    }
    longest, last = 0.0, None
    try:
        async for _ in server.pieces("/invocations", body):
            now = time.monotonic()
            longest, last = max(longest, now - (last or now)), now
            begun.set()
    except asyncio.CancelledError:
        now = time.monotonic()
        return max(longest, now - (last or now))
    return longest


@pytest.mark.asyncio(loop_scope="module")
async def test_a_costly_guide_costs_its_own_request_alone(server: RunningServer) -> None:
    begun = asyncio.Event()
    neighbour = asyncio.create_task(longest_gap(server, begun))
    await begun.wait()
    assert (await ask(server, guided_regex="[ab]{3}")).status == 200
    before = forks().keys()
    bombs = {name: asyncio.create_task(ask(server, **guide)) for name, guide in BOMBS.items()}
    await eventually(lambda: len(forks().keys() - before) > 1)
    for number in range(3):
        small = await asyncio.wait_for(ask(server, guided_choice=[f"yes {number}"]), SOON)
        assert small.json()["generated_text"] == f"yes {number}"
        assert (await server.get("/ping")).status == 200
    answers = dict(zip(bombs, await asyncio.wait_for(asyncio.gather(*bombs.values()), 3 * SOON), strict=True))
    neighbour.cancel()
    assert await neighbour < MAX_GAP
    statuses = {name: answer.status for name, answer in answers.items()}
    del statuses["ambiguity"]  # what is generated decides whether a mask takes too long: only its end is promised
    assert set(statuses.values()) == {424}, {name: (answer.status, answer.body) for name, answer in answers.items()}
    assert "ms of CPU time" in answers["nested repetitions"].json()["error"]
    assert "must compile within" in answers["more optional letters"].json()["error"]
    assert "must have at most" in answers["large enum"].json()["error"]
    assert "it does not allow any text" in answers["schema of itself"].json()["error"]
    await eventually(lambda: forks().keys() <= before)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_guide_that_took_too_much_is_not_tried_again(server: RunningServer) -> None:
    first, second = [await ask(server, guided_grammar=optional_letters(20001)) for _ in range(2)]
    assert first.status == second.status == 424
    assert first.json() == second.json()


@pytest.mark.asyncio(loop_scope="module")
async def test_the_compiling_process_is_replaced_when_it_is_killed(server: RunningServer) -> None:
    await ask(server, guided_choice=["c"])
    known = forks()
    bomb = asyncio.create_task(ask(server, guided_grammar=optional_letters(20003)))
    fork = await next_fork(known)
    compiling = forks()[fork]
    os.kill(compiling, signal.SIGKILL)
    assert (await ask(server, guided_choice=["d"])).json()["generated_text"] == "d"
    assert (await bomb).status == 424
    await eventually(lambda: not {fork, compiling} & processes(SERVER).keys())


async def test_compiling_ends_with_its_last_client_or_the_server(directory: Path, tmp_path: Path) -> None:
    patient = tmp_path / "patient"
    shutil.copytree(directory, patient)
    with (patient / "serving.properties").open("a") as properties:
        properties.write(f"option.guide_compile_timeout=600\noption.guide_memory_limit={4 * 2**30}\n")
    before, guide = processes(SERVER).keys(), optional_letters(10_000)
    async with running_server(patient) as server:
        await ask(server, guided_choice=["a"])
        known = forks()
        clients = [asyncio.create_task(ask(server, guided_grammar=guide)) for _ in range(2)]
        fork = await next_fork(known)
        clients[0].cancel()
        assert (await ask(server, guided_choice=["b"])).json()["generated_text"] == "b"
        assert is_running(fork)
        known = forks()
        clients[1].cancel()
        await eventually(lambda: not is_running(fork), LESS_THAN_COMPILING)
        third = asyncio.create_task(ask(server, guided_grammar=guide))
        fork = await next_fork(known)
        third.cancel()
    await eventually(lambda: processes(SERVER).keys() <= before, LESS_THAN_COMPILING)
    await eventually(lambda: not is_running(fork), LESS_THAN_COMPILING)

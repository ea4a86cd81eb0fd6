"""Workers that the system kills because memory has run out, as it does in containers with a limit."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.command_lines import workers_of
from tests.lmi_process import LmiProcess, lmi_serve
from tests.memory_limit import MemoryLimit, memory_limit

HELLO = Path(__file__).parents[3] / "examples" / "hello"
TORCH = ("-o", "option.rolling_batch=torch")
ASKED = 4
STORY = {
    "inputs": "Tell me a story.",
    "parameters": {"max_new_tokens": 400, "ignore_eos_token": True, "do_sample": True, "temperature": 1.2, "seed": 3},
    "stream": True,
}
MB = 2**20
KILLED = "the worker ended with exit code -9, as if killed by the system for lack of memory"


@pytest.fixture
def limit() -> Iterator[MemoryLimit]:
    with memory_limit() as limit:
        yield limit


def worker_of(server: LmiProcess) -> int:
    (worker,) = workers_of(psutil.Process(server.process.pid))
    return worker.pid


async def story(client: aiohttp.ClientSession, begun: asyncio.Event) -> dict[str, Any]:
    """Return the last line of a stream."""
    text = b""
    async with client.post("/invocations", json=STORY) as response:
        assert response.status == 200
        async for piece in response.content.iter_any():
            text += piece
            begun.set()
    last: dict[str, Any] = json.loads(text.splitlines()[-1])
    return last


async def test_requests_go_on_when_memory_has_run_out(limit: MemoryLimit) -> None:
    async with (
        lmi_serve(HELLO, *TORCH, "--port", 0, forked=False) as server,
        aiohttp.ClientSession(await server.ready()) as client,
    ):
        expected = await story(client, asyncio.Event())
        begun = [asyncio.Event() for _ in range(ASKED)]
        asked = [asyncio.create_task(story(client, each)) for each in begun]
        for each in begun:
            await each.wait()
        limit.set(MB)
        limit.add(worker_of(server))
        assert KILLED in await server.line_with("the worker ")
        assert [task for task in asked if task.done()] == []
        await server.line_with("the engine was restarted")
        texts = [each["generated_text"] for each in await asyncio.gather(*asked)]
        assert texts == [expected["generated_text"]] * ASKED


async def test_it_is_given_up_where_memory_runs_out_at_each_start(limit: MemoryLimit) -> None:
    async with (
        lmi_serve(HELLO, *TORCH, "-o", "retry_threshold=2", "--port", 0, forked=False) as server,
        aiohttp.ClientSession(await server.ready()) as client,
    ):
        worker = worker_of(server)
        process = psutil.Process(server.process.pid)
        limit.set(100 * MB)
        for each in {process, *process.children(recursive=True)} - {psutil.Process(worker)}:
            limit.add(each.pid)
        begun = asyncio.Event()
        asked = asyncio.create_task(story(client, begun))
        await begun.wait()
        psutil.Process(worker).kill()
        for _ in range(2):
            assert KILLED in await server.line_with("the engine could not be restarted")
        await server.line_with("the engine died and is not restarted again, after 2 consecutive restarts")
        assert await server.process.wait() == 1
        assert KILLED in str(await asked)

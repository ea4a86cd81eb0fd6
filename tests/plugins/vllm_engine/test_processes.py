"""vLLM's processes under a server of their own: killed, and stopped in every way."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from lmi_plugins.vllm_engine.processes import SERVER_VARIABLE
from tests.lmi_process import LmiProcess, lmi_serve
from tests.plugins.vllm_server import HELLO, PROPERTIES, STORY

pytestmark = [pytest.mark.usefixtures("vllm_environment"), pytest.mark.timeout(300)]

LONG = {"max_new_tokens": 1900, "ignore_eos_token": True}  # seconds, which is more than it takes to kill a process
SHORT = {"max_new_tokens": 200, "ignore_eos_token": True}
QUESTION, ANSWER = "What is Deep Learning?", {"generated_text": "Deep Learning is a really cool field."}


@dataclass(frozen=True)
class Served:
    server: LmiProcess
    client: aiohttp.ClientSession

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.server.process.pid)

    @property
    def core(self) -> psutil.Process:
        (core,) = engine_processes(self.process.children())
        return core

    @property
    def worker(self) -> psutil.Process:
        (worker,) = engine_processes(self.core.children())
        return worker

    async def ping(self) -> int:
        async with self.client.get("/ping") as answer:
            return answer.status

    @asynccontextmanager
    async def streams(self, count: int, parameters: dict[str, Any]) -> AsyncIterator[list[aiohttp.ClientResponse]]:
        """The first line of each has been read."""
        body = {"inputs": STORY, "stream": True, "parameters": {"details": True, **parameters}}
        async with AsyncExitStack() as stack:
            requests = [stack.enter_async_context(self.client.post("/invocations", json=body)) for _ in range(count)]
            responses = await asyncio.gather(*requests)
            await asyncio.gather(*(response.content.readline() for response in responses))
            yield responses


def engine_processes(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes of the engine, without the resource tracker of multiprocessing."""
    return [process for process in processes if "spawn_main" in " ".join(process.cmdline()) or "VLLM" in process.name()]


async def until_gone(processes: list[psutil.Process]) -> None:
    await asyncio.to_thread(psutil.wait_procs, processes)


@asynccontextmanager
async def served(folder: Path, properties: str = "") -> AsyncIterator[Served]:
    directory = folder / "model"
    directory.mkdir()
    longer = PROPERTIES.replace("max_model_len=1024", "max_model_len=2048")
    (directory / "serving.properties").write_text(f"{longer}option.model_id={HELLO}\n{properties}")
    async with lmi_serve(directory, "--port", 0) as server:
        url = await server.ready()
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(60)) as client:
            yield Served(server, client)


async def last_line(response: aiohttp.ClientResponse) -> Any:
    return json.loads((await response.read()).splitlines()[-1])


async def test_a_killed_engine_is_restarted_and_ctrl_c_lets_requests_finish(tmp_path: Path) -> None:
    async with served(tmp_path) as hello:
        core = hello.core
        async with hello.streams(3, LONG) as responses:
            core.kill()
            ends = [await last_line(response) for response in responses]
            assert await hello.ping() == 503  # before anything is restarted
        assert {end["details"]["finish_reason"] for end in ends} == {"error"}
        assert {end["error"] for end in ends} == {"the request was lost: vLLM's engine died"}
        async with hello.client.post("/invocations", json={"inputs": QUESTION}) as refused:
            assert refused.status == 503
        await hello.server.line_with("the engine was restarted")
        assert await hello.ping() == 200
        async with hello.client.post("/invocations", json={"inputs": QUESTION}) as answer:
            assert await answer.json() == ANSWER
        everything = hello.process.children(recursive=True)
        async with hello.streams(2, SHORT) as responses:
            os.killpg(hello.server.process.pid, signal.SIGINT)
            ends = [await last_line(response) for response in responses]
        assert {end["details"]["generated_tokens"] for end in ends} == {SHORT["max_new_tokens"]}
        assert await hello.server.process.wait() == 0
        await until_gone(everything)


async def test_an_engine_that_may_not_be_restarted_ends_the_server(tmp_path: Path) -> None:
    async with served(tmp_path, "retry_threshold=0\n") as hello:
        worker, everything = hello.worker, hello.process.children(recursive=True)
        async with hello.streams(2, LONG) as responses:
            worker.kill()
            ends = [await last_line(response) for response in responses]
        assert {end["details"]["finish_reason"] for end in ends} == {"error"}
        assert await hello.server.process.wait() == 1
        await until_gone(everything)
        with pytest.raises(AssertionError, match="is not restarted again, after 0 consecutive restarts"):
            await hello.server.line_with("no line is like this")


@pytest.mark.parametrize(
    ("number", "process"),
    [
        (signal.SIGTERM, "EngineCore"),
        (signal.SIGINT, "EngineCore"),
        (signal.SIGTERM, "Worker"),
    ],  # which loads the model
)
async def test_a_signal_while_the_engine_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, process: str
) -> None:
    """Sent once this process has written its first line; the server then ends by itself, before it is killed."""
    monkeypatch.setenv("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    (tmp_path / "serving.properties").write_text(f"{PROPERTIES}option.model_id={HELLO}\n")
    async with lmi_serve(tmp_path, "--port", 0) as server:
        await server.line_with(f"({process} pid=")
        everything = psutil.Process(server.process.pid).children(recursive=True)
        assert everything
        os.killpg(server.process.pid, number)
        assert await server.process.wait() == 0
        await until_gone(everything)


CHILD = """\
import multiprocessing, os, time
from lmi_plugins.vllm_engine.processes import prepare

def run():
    prepare()
    print(os.getpid(), os.getpgid(0), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    prepare()
    multiprocessing.get_context("spawn").Process(target=run).start()
"""


@pytest.mark.parametrize("marked", [True, False])
async def test_a_process_of_the_engine_ends_with_its_parent(tmp_path: Path, marked: bool) -> None:
    """Others' processes of vLLM are left alone."""
    (tmp_path / "parent.py").write_text(CHILD)
    environment = {name: value for name, value in os.environ.items() if name != SERVER_VARIABLE}
    if marked:
        environment[SERVER_VARIABLE] = "1"
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, str(tmp_path / "parent.py")), stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert parent.stdout is not None
    process_id, group = map(int, (await parent.stdout.readline()).split())
    child = psutil.Process(process_id)
    assert (group == process_id) is marked
    parent.kill()
    if not marked:
        child.kill()
    await until_gone([child])
    await parent.communicate()  # closes its pipe, which else is closed in the middle of some other test

"""vLLM's processes under a server of their own: killed, and stopped in every way, and what the server then holds."""

import asyncio
import json
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from tests.command_lines import command_line
from tests.lmi_process import LmiProcess, lmi_serve
from tests.plugins.vllm_server import HELLO, PROPERTIES, STORY

pytestmark = [pytest.mark.usefixtures("vllm_environment"), pytest.mark.timeout(600)]

PATIENCE = 500  # seconds, in which an engine is started on a machine that does much else
LENGTH, LONGEST = 2048, 30_000  # tokens; the latter are more than the model was made for
LONG = {"max_new_tokens": 1900, "ignore_eos_token": True}  # seconds, which is more than it takes to kill a process
ENDLESS = {"max_new_tokens": LONGEST - 100, "ignore_eos_token": True}  # however late a busy machine kills one
SHORT = {"max_new_tokens": 200, "ignore_eos_token": True}
COMPILED = "TORCHINDUCTOR_CACHE_DIR"  # kept out of the temporary folders of tests, as compiling takes 20 seconds
QUESTION, ANSWER = "What is Deep Learning?", {"generated_text": "Deep Learning is a really cool field."}


@dataclass(frozen=True)
class Held:
    descriptors: Counter[str]
    threads: Counter[str]
    files: list[str]  # in the temporary folder
    sockets: int  # in the folder of vLLM's


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

    async def next_core(self, known: psutil.Process) -> psutil.Process:
        """Wait for the process of a core that replaces a known one."""
        while not (cores := [each for each in engine_processes(self.process.children()) if each.pid != known.pid]):
            await asyncio.sleep(0.1)
        return cores[0]

    @property
    def worker(self) -> psutil.Process:
        (worker,) = engine_processes(self.core.children())
        return worker

    def shared_memory(self) -> set[Path]:
        """Return the shared memory that the server and its processes use now and that has a name."""
        maps = [
            each for process in (self.process, *self.process.children(recursive=True)) for each in process.memory_maps()
        ]
        return {path for each in maps if (path := Path(each.path)).is_relative_to("/dev/shm") and path.exists()}

    def holds(self, temporary: Path) -> Held:
        """Return what the server holds, connections to clients aside; equal kinds have the same name."""
        links = [os.readlink(f"/proc/{self.process.pid}/fd/{fd.name}") for fd in self._listed("fd")]
        names = [(thread / "comm").read_text().strip() for thread in self._listed("task")]
        return Held(
            Counter(re.sub(r"\d+", "N", link) for link in links if not link.startswith("socket:")),
            Counter(re.sub(r"\d+", "N", name) for name in names),
            [path.name for path in sorted(temporary.iterdir())],
            len([*temporary.glob("lmi-*/*")]),
        )

    def _listed(self, kind: str) -> list[Path]:
        return [*Path(f"/proc/{self.process.pid}/{kind}").iterdir()]

    async def ping(self) -> int:
        async with self.client.get("/ping") as answer:
            return answer.status

    async def until_ready(self) -> None:
        while await self.ping() != 200:
            await asyncio.sleep(0.1)

    @asynccontextmanager
    async def streams_of(
        self, kinds: list[dict[str, Any]], common: dict[str, Any]
    ) -> AsyncIterator[list[aiohttp.ClientResponse]]:
        """Each has begun."""
        asked: list[dict[str, Any]] = [{"details": True, **common, **each} for each in kinds]
        bodies = [{"inputs": STORY, "stream": True, "parameters": each} for each in asked]
        async with AsyncExitStack() as stack:
            requests = [stack.enter_async_context(self.client.post("/invocations", json=body)) for body in bodies]
            yield await asyncio.gather(*requests)

    @asynccontextmanager
    async def streams(self, count: int, parameters: dict[str, Any]) -> AsyncIterator[list[aiohttp.ClientResponse]]:
        """The first line of each has been read."""
        body = {"inputs": STORY, "stream": True, "parameters": {"details": True, **parameters}}
        async with AsyncExitStack() as stack:
            requests = [stack.enter_async_context(self.client.post("/invocations", json=body)) for _ in range(count)]
            responses = await asyncio.gather(*requests)
            await asyncio.gather(*(response.content.readline() for response in responses))
            yield responses


async def assert_no_more(hello: Served, temporary: Path, before: Held) -> None:
    """Fail if more is held for ten seconds, as the pool of a dead engine's work may need a moment to let go.

    One thread more may be one of the pool in which the server does what takes time.
    """
    for _ in range(100):
        after = hello.holds(temporary)
        if is_no_more(after, before):
            return
        await asyncio.sleep(0.1)
    assert (after, "is held") == (before, "was held")


def is_no_more(after: Held, before: Held) -> bool:
    more = after.threads - before.threads
    return (
        (after.descriptors, after.files, after.sockets) == (before.descriptors, before.files, before.sockets)
        and more.total() <= 1
        and not any(name.startswith("ZMQ") for name in more)
    )


def engine_processes(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes of the engine, without the resource tracker of multiprocessing."""
    return [
        process for process in processes if "spawn_main" in " ".join(command_line(process)) or "VLLM" in process.name()
    ]


async def until_gone(processes: list[psutil.Process]) -> None:
    await asyncio.to_thread(psutil.wait_procs, processes)


@asynccontextmanager
async def served(
    folder: Path, properties: str = "", length: int = LENGTH, *, forked: bool = True, **environment: str
) -> AsyncIterator[Served]:
    directory = folder / "model"
    directory.mkdir()
    longer = PROPERTIES.replace("max_model_len=1024", f"max_model_len={length}")
    longer += f"option.model_id={HELLO}\noption.predict_timeout={PATIENCE}\n"
    (directory / "serving.properties").write_text(longer + properties)
    environment |= {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1", COMPILED: default_cache_dir()}
    async with lmi_serve(directory, "--port", 0, environment=environment, forked=forked) as server:
        url = await server.ready()
        async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(PATIENCE)) as client:
            yield Served(server, client)


async def last_line(response: aiohttp.ClientResponse) -> Any:
    return json.loads((await response.read()).splitlines()[-1])


def remaining(shared_memory: set[Path]) -> list[Path]:
    """Return what is left of shared memory that processes had, of which there was some."""
    assert shared_memory
    return [path for path in shared_memory if path.exists()]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder of a short name, as those of sockets are bounded."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def test_a_server_that_is_killed_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    async with served(tmp_path, TMPDIR=str(temporary)) as hello:
        everything, memory = hello.process.children(recursive=True), hello.shared_memory()
        async with hello.streams(2, LONG):
            hello.process.kill()
            await until_gone(everything)
    assert left_by_us(temporary) == []
    assert remaining(memory) == []


def left_by_us(temporary: Path) -> list[str]:
    """Return the sockets and folders of the engine that are left; libraries may keep caches."""
    return [path.name for path in temporary.iterdir() if path.name.startswith(("lmi-", "vllm_")) or path.is_socket()]


PARAMETERS: list[dict[str, Any]] = [
    {},
    {"do_sample": True, "seed": 3},
    {"guided_regex": "[a-z ]{650}"},
    {"presence_penalty": 0.5, "stop_sequences": ["no text has this"]},
    {"logprobs": 2, "decoder_input_details": True},
]
ENOUGH = {"max_new_tokens": 600, "ignore_eos_token": True}  # not at its end when all streams have begun


async def test_engines_are_replaced_unseen_and_leave_nothing_and_signals_let_requests_finish(
    tmp_path: Path, temporary: Path
) -> None:
    """One is stopped, the next one killed, with a worker that ends late; in the end signals come."""
    options = "option.heartbeat_timeout=10\noption.inter_token_timeout=30\n"  # an engine may take longer to start
    async with served(tmp_path, options, forked=False, TMPDIR=str(temporary)) as hello:
        async with hello.streams_of(PARAMETERS, ENOUGH) as responses:
            expected = [read_stream(await response.read()) for response in responses]
        held, memory = hello.holds(temporary), hello.shared_memory()
        await stopped_engine_is_replaced(hello, expected)
        await assert_no_more(hello, temporary, held)
        memory |= hello.shared_memory()
        await killed_engine_is_replaced(hello, expected)
        await assert_no_more(hello, temporary, held)
        memory |= hello.shared_memory()
        await signals_let_requests_finish(hello)
        with pytest.raises(AssertionError) as log:
            await hello.server.line_with("no line is like this")
    assert "Traceback" not in str(log.value)
    assert left_by_us(temporary) == []
    assert remaining(memory) == []


async def stopped_engine_is_replaced(hello: Served, expected: list[Any]) -> None:
    everything = [*hello.core.children(recursive=True), hello.core]
    async with hello.streams_of(PARAMETERS, ENOUGH) as responses:
        hello.core.suspend()
        found = [read_stream(await response.read()) for response in responses]
    assert found == expected
    await until_gone(everything)
    await hello.until_ready()  # it is, unless all streams had ended when the engine was stopped


async def killed_engine_is_replaced(hello: Served, expected: list[Any]) -> None:
    """A worker ends late, before which no other engine begins."""
    core, worker = hello.core, hello.worker
    async with hello.streams_of(PARAMETERS, ENOUGH) as responses:
        worker.suspend()
        core.kill()
        while await hello.ping() != 503:  # before anything is restarted
            await asyncio.sleep(0.05)
        async with hello.client.post("/invocations", json={"inputs": QUESTION}) as refused:
            assert refused.status == 503
        await hello.next_core(core)
        worker.resume()
        await until_gone([worker])
        found = [read_stream(await response.read()) for response in responses]
    assert found == expected
    await hello.until_ready()
    async with hello.client.post("/invocations", json={"inputs": QUESTION}) as answer:
        assert await answer.json() == ANSWER


async def signals_let_requests_finish(hello: Served) -> None:
    """All processes of the engine get them, as from systemd and container runtimes, and the server Ctrl-C."""
    everything = hello.process.children(recursive=True)
    async with hello.streams(2, SHORT) as responses:
        for process in engine_processes(everything):
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGHUP)
        os.killpg(hello.server.process.pid, signal.SIGINT)
        ends = [await last_line(response) for response in responses]
    assert {end["details"]["generated_tokens"] for end in ends} == {SHORT["max_new_tokens"]}
    assert await hello.server.process.wait() == 0
    await until_gone(everything)


def read_stream(body: bytes) -> tuple[list[Any], Any]:
    """Return the tokens of a stream, and its last line without the numbers that rounding changes."""
    lines = [json.loads(line) for line in body.splitlines()]
    assert "error" not in lines[-1], lines[-1]
    tokens = [(line["token"]["id"], line["token"]["text"]) for line in lines]
    return tokens, (lines[-1]["generated_text"], lines[-1]["details"]["finish_reason"])


async def test_a_killed_engine_that_is_not_to_be_restarted_ends_the_server(tmp_path: Path) -> None:
    async with served(tmp_path, "option.resume=false\nretry_threshold=0\n", LONGEST) as hello:
        everything, worker = hello.process.children(recursive=True), hello.worker
        async with hello.streams(3, ENDLESS) as responses:
            worker.kill()
            ends = [await last_line(response) for response in responses]
        assert {end["details"]["finish_reason"] for end in ends} == {"error"}
        assert {end["error"] for end in ends} == {"the request was lost: vLLM's engine died"}
        assert await hello.server.process.wait() == 1
        await until_gone(everything)
        with pytest.raises(AssertionError, match="is not restarted again, after 0 consecutive restarts"):
            await hello.server.line_with("no line is like this")


@pytest.mark.parametrize(
    ("number", "process"),
    [(signal.SIGINT, "EngineCore"), (signal.SIGTERM, "VllmWorker-0")],  # the latter loads the model
)
async def test_a_signal_while_the_engine_starts(tmp_path: Path, number: signal.Signals, process: str) -> None:
    """Sent once this process has written its first line; the server then ends by itself, before it is killed."""
    (tmp_path / "serving.properties").write_text(f"{PROPERTIES}option.model_id={HELLO}\n")
    async with lmi_serve(tmp_path, "--port", 0) as server:
        await server.line_with(f" {process} vllm.")
        everything = psutil.Process(server.process.pid).children(recursive=True)
        assert everything
        os.killpg(server.process.pid, number)
        assert await server.process.wait() == 0
        await until_gone(everything)


async def test_a_server_that_is_killed_while_its_engine_starts_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    """The signal comes before the core meets the server, for which vLLM has it wait five minutes."""
    (tmp_path / "serving.properties").write_text(f"{PROPERTIES}option.model_id={HELLO}\n")
    async with lmi_serve(tmp_path, "--port", 0, environment={"TMPDIR": str(temporary)}) as server:
        process = psutil.Process(server.process.pid)
        while not engine_processes(process.children()):
            await asyncio.sleep(0.1)
        everything = process.children(recursive=True)
        process.kill()
        await until_gone(everything)
    assert left_by_us(temporary) == []

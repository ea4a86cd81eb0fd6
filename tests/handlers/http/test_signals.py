"""Signals to `lmi serve`, as a process, at every moment of its life."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import psutil
import pytest

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import LmiProcess, lmi_serve

ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
ENDLESS = SCRIPTED + "option.scripted_delay=60\n"
ENTRY = (sys.executable, "-c", "from lmi_handlers.cli.entry import main; main()")
# Looks for processes to reap each second, and not only each few.
QUICK = "from lmi_handlers.process.signals import reap_adopted; reap_adopted.__defaults__ = (1.0,)"
NEVER_IMPORTED = """\
import sys, time

class Never:
    def find_spec(self, name, *_):
        if name == "lmi_handlers.cli.main":
            time.sleep(1000)

sys.meta_path.insert(0, Never())
from lmi_handlers.cli.entry import main; main()
"""
SLOW_SCRIPT = """\
import os
from pathlib import Path

(Path(__file__).with_name("loading")).write_text(str(os.getpid()))
import threading
threading.Event().wait()

def handle(inputs):
    return None
"""
BEGUN = """\
import threading
from djl_python import Output

def words():
    yield "one"
    threading.Event().wait()

def handle(inputs):
    return None if inputs.is_empty() else Output().add_stream_content(words())
"""

STUCK = """\
from lmi import OutputFormatter, output_formatter

@output_formatter
class Stuck(OutputFormatter):
    content_type = "text/plain"

    def format(self, output):
        while True:
            pass

    def error(self, error):
        return b""
"""
AT_ONCE = (
    "from lmi_handlers.process import blocked_loop, signals; "
    "signals.STUCK_SECONDS = 0.0; blocked_loop.BLOCKED_SECONDS = blocked_loop.LOOK_SECONDS = 0.1"
)

ORPHAN = """\
import subprocess
from pathlib import Path
from djl_python import Output

def handle(inputs):
    if inputs.is_empty():
        return None
    script = "sleep 0.2 & echo $!"
    orphan = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
    Path(__file__).with_name("orphan").write_text(orphan.stdout)
    return Output().add("done")
"""


async def until_gone(processes: list[psutil.Process]) -> None:
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, timeout=60)
    assert alive == []


def children(server: LmiProcess) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


@asynccontextmanager
async def streaming(url: str, path: str, body: object) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream of which something has been read."""
    async with aiohttp.ClientSession(url) as client, client.post(path, json=body) as response:
        await response.content.readline()
        yield response


@pytest.mark.parametrize("number", ENDING)
async def test_idle(model_dir: ModelDirectory, number: signal.Signals) -> None:
    async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", 0) as server:
        await server.ready()
        server.process.send_signal(number)
        assert await server.process.wait() == 0


@pytest.mark.parametrize("number", ENDING)
async def test_while_a_model_loads(model_dir: ModelDirectory, tmp_path: Path, number: signal.Signals) -> None:
    """The script never ends; its worker is gone with the server, and so is all that they had in temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    directory = model_dir({"model.py": SLOW_SCRIPT})
    async with lmi_serve(directory, "--port", 0, environment={"TMPDIR": str(folder)}) as server:
        await server.line_with("loading")
        everything = children(server)
        assert everything
        server.process.send_signal(number)
        await server.line_with("shutting down before the models are loaded")
        assert await server.process.wait() == 0
        await until_gone(everything)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", ENDING)
async def test_before_anything_is_imported(model_dir: ModelDirectory, number: signal.Signals) -> None:
    """The kernel tells when the process has handlers of its own: before it imports what a server needs."""
    directory = model_dir({"serving.properties": SCRIPTED})
    command = (sys.executable, "-c", NEVER_IMPORTED, "serve", directory)
    server = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    status = Path(f"/proc/{server.pid}/status")
    while not handles(status, ENDING[-1]):
        await asyncio.sleep(0)
    server.send_signal(number)
    assert server.stderr is not None
    log = await server.stderr.read()
    assert await server.wait() == 0
    assert b"Traceback" not in log
    assert b"Ready" not in log


def handles(status: Path, number: signal.Signals) -> bool:
    caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


async def test_a_signal_that_is_to_be_ignored(model_dir: ModelDirectory) -> None:
    """The server is started as by nohup."""
    directory = model_dir({"serving.properties": SCRIPTED})
    script = f"trap '' HUP; exec {sys.executable} -c '{ENTRY[2]}' serve {directory} --port 0"
    process = await asyncio.create_subprocess_shell(script, stderr=asyncio.subprocess.PIPE)
    server = LmiProcess(process)
    url = await server.ready()
    process.send_signal(signal.SIGHUP)
    async with aiohttp.ClientSession(url) as client, client.get("/ping") as ping:
        assert ping.status == 200
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    await process.communicate()


async def test_a_model_function_that_does_not_finish_in_time(model_dir: ModelDirectory) -> None:
    arguments = (model_dir({"model.py": BEGUN}), "--port", 0, "--drain-seconds", 0.1)
    async with lmi_serve(*arguments) as server:
        url = await server.ready()
        async with streaming(url, "/invocations", {"inputs": "hi"}) as response:
            everything = children(server)
            server.process.send_signal(signal.SIGTERM)
            assert b"the server is shutting down" in await response.read()
        assert await server.process.wait() == 0
        await until_gone(everything)


async def test_a_second_signal_ends_requests_with_an_error(model_dir: ModelDirectory) -> None:
    async with lmi_serve(model_dir({"serving.properties": ENDLESS}), "--port", 0) as server:
        url = await server.ready()
        async with streaming(url, "/invocations", {"inputs": "hi", "stream": True}) as response:
            server.process.send_signal(signal.SIGINT)
            await server.line_with("shutting down")
            server.process.send_signal(signal.SIGINT)
            assert json.loads((await response.read()).splitlines()[-1])["error"] == "the server is shutting down"
        assert await server.process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_to_all_processes_lets_requests_finish(
    model_dir: ModelDirectory, number: signal.Signals
) -> None:
    """The worker gets the signal too, as from systemd and container runtimes, whichever group it is in."""
    script = BEGUN.replace("threading.Event().wait()", WAIT_FOR_FILE) + "\n"
    directory = model_dir({"model.py": "from pathlib import Path\nimport time\n" + script})
    async with lmi_serve(directory, "--port", 0) as server:
        url = await server.ready()
        async with streaming(url, "/invocations", {"inputs": "hi"}) as response:
            everything = [psutil.Process(server.process.pid), *children(server)]
            assert len(everything) > 1
            for process in everything:
                process.send_signal(number)
            await server.line_with("shutting down: running requests (1)")
            (directory / "go").touch()
            assert (await response.read()).endswith(b'{"outputs":"two"}\n')
        assert await server.process.wait() == 0
        await until_gone(everything[1:])


async def test_signals_without_effect(model_dir: ModelDirectory) -> None:
    """Neither the server nor its worker ends: the same worker finishes the stream that was in progress."""
    script = BEGUN.replace("threading.Event().wait()", WAIT_FOR_FILE) + "\n"
    directory = model_dir({"model.py": "from pathlib import Path\nimport time\n" + script})
    async with lmi_serve(directory, "--port", 0) as server:
        url = await server.ready()
        async with streaming(url, "/invocations", {"inputs": "hi"}) as response:
            for process in (psutil.Process(server.process.pid), *children(server)):
                process.send_signal(signal.SIGUSR1)
                process.send_signal(signal.SIGUSR2)
            (directory / "go").touch()
            assert (await response.read()).endswith(b'{"outputs":"two"}\n')
        server.process.terminate()
        assert await server.process.wait() == 0


WAIT_FOR_FILE = """while not Path(__file__).with_name("go").exists():
        time.sleep(0.01)
    yield "two\""""


async def test_a_server_that_is_killed_leaves_nothing(model_dir: ModelDirectory, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    directory = model_dir({"model.py": BEGUN})
    async with lmi_serve(directory, "--port", 0, environment={"TMPDIR": str(folder)}) as server:
        url = await server.ready()
        async with streaming(url, "/invocations", {"inputs": "hi"}):
            everything = children(server)
            assert everything
            server.process.kill()
            await until_gone(everything)
    assert list(folder.iterdir()) == []


async def test_nobody_reads_the_log(model_dir: ModelDirectory) -> None:
    """The pipe is full after the first few requests, each of which is a long line."""
    async with lmi_serve(model_dir({"serving.properties": SCRIPTED}), "--port", 0) as server:
        url = await server.ready()
        headers = {"x-request-id": "x" * 200}
        async with aiohttp.ClientSession(url) as client:
            for _ in range(600):
                async with client.post("/invocations", json={"inputs": "hi"}, headers=headers) as answer:
                    assert answer.status == 200
                    await answer.read()
        server.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(psutil_wait(server), 60) == 0


async def psutil_wait(server: LmiProcess) -> int | None:
    """Wait for the process alone, where asyncio would also wait for its pipe to be read."""
    while server.process.returncode is None:
        await asyncio.sleep(0.01)
    return server.process.returncode


async def test_process_1_of_a_container(model_dir: ModelDirectory) -> None:
    """The server heeds signals, which a process 1 without handlers does not get, and reaps what it is left with."""
    directory = model_dir({"model.py": ORPHAN})
    inside = f"exec {sys.executable} -c '{QUICK}; {ENTRY[2]}' serve {directory} --port 0"
    namespace = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child")
    process = await asyncio.create_subprocess_exec(*namespace, "sh", "-c", inside, stderr=asyncio.subprocess.PIPE)
    server = LmiProcess(process)
    url = await server.ready()
    (first,) = psutil.Process(process.pid).children()
    async with aiohttp.ClientSession(url) as client, client.post("/invocations", json={}) as answer:
        assert answer.status == 200
    orphan = int((directory / "orphan").read_text())
    while f"({orphan})" in inner_ids(first):
        await asyncio.sleep(0.1)
    first.terminate()
    assert await process.wait() == 0
    await process.communicate()


def inner_ids(first: psutil.Process) -> str:
    """Return the ids that the children of a process have in its own namespace."""
    found = []
    for child in first.children(recursive=True):
        with suppress(OSError):
            status = Path(f"/proc/{child.pid}/status").read_text()
            found.append(next(line for line in status.splitlines() if line.startswith("NSpid")).split()[-1])
    return " ".join(f"({each})" for each in found)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-"])
async def test_closed_descriptors(model_dir: ModelDirectory, closed: str) -> None:
    directory = model_dir({"model.py": BEGUN})
    command = f"exec {sys.executable} -c '{ENTRY[2]}' serve {directory} --port 0 {closed}"
    process = await asyncio.create_subprocess_shell(command, stderr=asyncio.subprocess.PIPE)
    server = LmiProcess(process)
    await server.ready()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    await process.communicate()


async def test_code_that_blocks_the_server_does_not_keep_it(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED, "model.py": STUCK})
    command = (sys.executable, "-c", f"{AT_ONCE}; {ENTRY[2]}", "serve", directory, "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    server = LmiProcess(process)
    async with aiohttp.ClientSession(await server.ready()) as client:
        asking = asyncio.create_task(client.post("/invocations", json={"inputs": "Hello"}))
        place = await server.line_with('model.py", line')
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)  # another one, because two of the same may count once
        assert await process.wait() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
        with pytest.raises(aiohttp.ClientError):
            await asking
    await process.communicate()
    assert ", in format" in place

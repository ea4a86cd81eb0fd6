"""Processes of an engine and their parents, without vLLM: who ends with whom, and who removes what."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lmi_plugins.vllm_engine.failures import VARIABLE
from lmi_plugins.vllm_engine.processes import SERVER_VARIABLE
from lmi_plugins.vllm_engine.socket_folder import FOLDER_VARIABLE, SOCKETS_VARIABLE


async def until_gone(processes: list[psutil.Process]) -> None:
    await asyncio.to_thread(psutil.wait_procs, processes)


# A server, its core, and the core's worker, as far as they are this project's. They end with the end of their input.
PROCESSES = """\
import multiprocessing, os, sys, types
without_vllm = types.SimpleNamespace(mend_adapters=int, mend_seeds=int)
sys.modules["lmi_plugins.vllm_engine.adapters.cpu_adapters"] = without_vllm
sys.modules["lmi_plugins.vllm_engine.requests.cpu_seeds"] = without_vllm
from lmi_plugins.vllm_engine.processes import SERVER_VARIABLE, prepare, server_id
from lmi_plugins.vllm_engine.socket_folder import SocketFolder

def run(depth):
    prepare()
    print(os.getpid(), os.getpgid(0), flush=True)
    if depth:
        start(depth - 1)
    multiprocessing.Event().wait()

def start(depth):
    multiprocessing.get_context("spawn").Process(target=run, args=(depth,)).start()

if __name__ == "__main__":
    if sys.argv[1] == "server":
        os.environ[SERVER_VARIABLE] = server_id()
        folder = SocketFolder()
        folder.enter()
    prepare()
    print(os.environ.get("VLLM_RPC_BASE_PATH"), flush=True)
    start(1)
"""


@dataclass(frozen=True)
class Family:
    """A program, the folder that it has, its child, and the child of that."""

    program: asyncio.subprocess.Process
    folder: Path
    core: psutil.Process
    worker: psutil.Process
    groups: list[bool]  # whether the last two have one of their own

    async def end(self) -> None:
        for process in (self.worker, self.core):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self.program.returncode is None:
            self.program.kill()
        await self.program.communicate()  # closes its pipe, which else is closed in the middle of some other test


@asynccontextmanager
async def family(folder: Path, kind: str, environment: Mapping[str, str]) -> AsyncIterator[Family]:
    (folder / "program.py").write_text(PROCESSES)
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, str(folder / "program.py"), kind), stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert program.stdout is not None
    sockets = (await program.stdout.readline()).decode().strip()
    lines = [(await program.stdout.readline()).split() for _ in range(2)]
    core, worker = (psutil.Process(int(process_id)) for process_id, _ in lines)
    processes = Family(program, Path(sockets), core, worker, [process_id == group for process_id, group in lines])
    try:
        yield processes
    finally:
        await processes.end()


def without_engine() -> dict[str, str]:
    """Return the environment without what an engine of this process may have put there."""
    ours = (SERVER_VARIABLE, FOLDER_VARIABLE, SOCKETS_VARIABLE, VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in ours}


async def test_a_process_of_the_engine_ends_with_its_parent_but_only_those_of_the_server_remove_its_folder(
    tmp_path: Path,
) -> None:
    async with family(tmp_path, "server", without_engine()) as server:
        assert server.groups == [True, True]
        assert server.folder.is_dir()
        server.core.kill()
        await until_gone([server.worker])
        assert server.folder.is_dir()
    async with family(tmp_path, "server", without_engine()) as server:
        server.program.kill()
        await until_gone([server.core, server.worker])
        assert not server.folder.exists()


async def test_processes_of_others_are_left_alone(tmp_path: Path) -> None:
    async with family(tmp_path, "other", without_engine()) as other:
        assert other.groups == [False, False]
        program = psutil.Process(other.program.pid)
        program.kill()
        await until_gone([program])
        assert all(process.is_running() for process in (other.core, other.worker))


async def test_a_server_that_a_server_starts_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """A program that has an engine leaves its environment to the server that it starts."""
    (shared := tmp_path / "shared").mkdir()
    inherited = {
        SERVER_VARIABLE: str(os.getpid()),
        FOLDER_VARIABLE: str(shared),
        SOCKETS_VARIABLE: str(shared),
        VARIABLE: str(tmp_path / "failures.jsonl"),
    }
    async with family(tmp_path, "server", without_engine() | inherited) as server:
        assert server.folder != shared
        variables = psutil.Process(server.core.pid).environ()
        assert variables[SERVER_VARIABLE] == str(server.program.pid)
        assert variables[FOLDER_VARIABLE] == variables[SOCKETS_VARIABLE] == str(server.folder)
        assert VARIABLE not in variables
        server.program.kill()
        await until_gone([server.core, server.worker])
    assert shared.is_dir()
    asked_for = without_engine() | inherited | {SOCKETS_VARIABLE: str(tmp_path)}
    async with family(tmp_path, "server", asked_for) as server:
        assert server.folder == tmp_path


PROGRAM = """\
import multiprocessing, os
from lmi_plugins.vllm_engine.processes import SERVER_VARIABLE, is_server, server_id

os.environ[SERVER_VARIABLE] = server_id()
while_imported = is_server()

def run():
    print(while_imported, is_server(), flush=True)

if __name__ == "__main__":
    run()
    multiprocessing.get_context("spawn").Process(target=run).start()
"""


def test_a_program_with_engines_in_its_main_module(tmp_path: Path) -> None:
    """The children of a program import that module too, and are no servers."""
    (program := tmp_path / "program.py").write_text(PROGRAM)
    said = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.splitlines() == ["True True", "False False"]


# A core whose work ends with an exception while its worker runs, which leaves SIGTERM to the server.
ENDING = """\
import multiprocessing, os, signal, sys, types
from lmi_plugins.vllm_engine.processes import end_with, run_core

context = multiprocessing.get_context("fork")

def work(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    end_with(multiprocessing.parent_process())
    ready.set()
    context.Event().wait()

def fail(vllm_config):
    assert os.environ["LMI_LOG_MODEL"] == "mine"  # in the log lines of the core and its workers
    ready = context.Event()
    context.Process(target=work, args=(ready,), daemon=True).start()
    ready.wait()
    raise {error}

def core():
    of_vllm = types.SimpleNamespace(EngineCoreProc=types.SimpleNamespace(run_engine_core=fail))
    sys.modules["vllm.v1.engine.core"] = of_vllm
    model = types.SimpleNamespace(served_model_name="mine")
    run_core(vllm_config=types.SimpleNamespace(model_config=model))

process = context.Process(target=core)
process.start()
process.join()
print(process.exitcode)
"""


@pytest.mark.parametrize(("error", "status", "told"), [("ValueError('broken')", 1, True), ("SystemExit()", 0, False)])
def test_a_core_does_not_outlast_its_work_because_of_its_workers(error: str, status: int, told: bool) -> None:
    program = [sys.executable, "-c", ENDING.format(error=error)]
    said = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout == f"{status}\n"
    assert ("ValueError: broken" in said.stderr) is told

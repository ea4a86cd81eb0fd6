"""Who runs where beside workers that are bound, and beside some that are not; and who waits for whom."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from lmi_plugins.vllm_engine.compute_cpus import let_core_look

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are bound on Linux only")

CHILD = """\
import os, sys, threading
from pathlib import Path

def wait():
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("gloo_tcp_loop")
    print(threading.get_native_id(), flush=True)
    threading.Event().wait()

name, *bound = sys.argv[1:]
Path("/proc/self/comm").write_text(name)
if bound:
    os.sched_setaffinity(0, map(int, bound))
threading.Thread(target=wait, daemon=True).start()
sys.stdin.read()
"""
SERVER = """\
import json, os, subprocess, sys
from lmi_plugins.vllm_engine.compute_cpus import leave_to_workers, share_again

def child(*arguments):
    command = [sys.executable, "child.py", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

worker, core = child("VLLM::Worker_TP0", *sys.argv[1:]), child("VLLM::EngineCor")
messenger, _ = [int(process.stdout.readline()) for process in (worker, core)]
moved = leave_to_workers()
threads = {"server": os.getpid(), "core": core.pid, "worker": worker.pid, "messenger": messenger}
cpus = {name: sorted(os.sched_getaffinity(thread)) for name, thread in threads.items()}
waiting = [name for name, thread in threads.items() if os.sched_getscheduler(thread) == os.SCHED_BATCH]
share_again()
print(json.dumps([moved, cpus, waiting, sorted(os.sched_getaffinity(0))]))
for process in (worker, core):
    process.communicate()
"""


LOOKING = """\
import mmap, os, sys

with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 8) as looks:
    print("ready", flush=True)
    while True:
        looks[:] = (int.from_bytes(looks) + 1).to_bytes(8)
        os.sched_yield()
"""


class Found(NamedTuple):
    moved: bool
    cpus: dict[str, list[int]]
    waiting: list[str]  # those that do not interrupt others
    at_last: list[int]  # the server's CPUs


def found(folder: Path, *bound: int) -> Found:
    (folder / "child.py").write_text(CHILD)
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, "server.py", *map(str, bound)]
    return Found(*json.loads(subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE).stdout))


def test_all_but_what_computes_leaves_a_workers_cpus(tmp_path: Path) -> None:
    everywhere = sorted(os.sched_getaffinity(0))
    computing, *left = everywhere
    if not left:
        assert not found(tmp_path, computing).moved
        return
    cpus = {"server": left, "core": left, "worker": [computing], "messenger": left}
    assert found(tmp_path, computing) == (True, cpus, ["messenger"], everywhere)


def test_nothing_moves_beside_workers_that_are_not_bound(tmp_path: Path) -> None:
    everywhere = sorted(os.sched_getaffinity(0))
    cpus = dict.fromkeys(("server", "core", "worker", "messenger"), everywhere)
    assert found(tmp_path) == (False, cpus, [], everywhere)


def test_a_core_on_the_same_cpu_looks_between_two_pieces_of_work(tmp_path: Path) -> None:
    everywhere, pieces = os.sched_getaffinity(0), 200
    (tmp_path / "looking.py").write_text(LOOKING)
    (tmp_path / "looks").write_bytes(bytes(8))
    command = [sys.executable, str(tmp_path / "looking.py"), str(tmp_path / "looks")]
    os.sched_setaffinity(0, {min(everywhere)})
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as core:
            try:
                assert core.stdout is not None
                core.stdout.readline()
                assert looks_during(pieces, tmp_path / "looks") >= pieces // 2
            finally:
                core.kill()
    finally:
        os.sched_setaffinity(0, everywhere)


def looks_during(pieces: int, looks: Path) -> int:
    before = int.from_bytes(looks.read_bytes())
    for _ in range(pieces):
        sum(range(1000))
        let_core_look()
    return int.from_bytes(looks.read_bytes()) - before

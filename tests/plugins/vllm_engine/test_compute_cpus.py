"""Who runs where beside workers that are bound, and beside some that are not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
import os, subprocess, sys
from lmi_plugins.vllm_engine.compute_cpus import leave_to_workers, share_again

def child(*arguments):
    command = [sys.executable, "child.py", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

worker, core = child("VLLM::Worker_TP0", *sys.argv[1:]), child("VLLM::EngineCor")
messenger, _ = [int(process.stdout.readline()) for process in (worker, core)]
leave_to_workers()
for thread in (os.getpid(), core.pid, worker.pid, messenger):
    print(*os.sched_getaffinity(thread))
share_again()
print(*os.sched_getaffinity(0))
for process in (worker, core):
    process.communicate()
"""


def cpus(folder: Path, *bound: int) -> list[set[int]]:
    """The server's, the core's, its worker's, those of a thread of that which passes messages; the server's at last."""
    (folder / "child.py").write_text(CHILD)
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, "server.py", *map(str, bound)]
    printed = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [set(map(int, line.split())) for line in printed.splitlines()]


def test_all_but_what_computes_leaves_a_workers_cpus(tmp_path: Path) -> None:
    everywhere = os.sched_getaffinity(0)
    computing = min(everywhere)
    left = everywhere - {computing} or everywhere  # where there is only one, nothing moves
    assert cpus(tmp_path, computing) == [left, left, {computing}, left, everywhere]


def test_nothing_moves_beside_workers_that_are_not_bound(tmp_path: Path) -> None:
    assert cpus(tmp_path) == [os.sched_getaffinity(0)] * 5

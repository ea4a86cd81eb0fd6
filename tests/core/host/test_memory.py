import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmi_core.host.memory import (
    DeviceMemory,
    free_main_memory,
    gpu_memory,
    return_free_memory,
    total_main_memory,
)
from lmi_core.host.processes import memory_of

MEBIBYTE = 1024 * 1024
FACTS = "MemTotal:       1000 kB\nMemAvailable:    400 kB\n"
GPUS = "0, GPU-a, 1000, 81559, 80000, NVIDIA H100 80GB HBM3\n1, GPU-b, 0, 81559, 81000, NVIDIA H100 80GB HBM3\n"


def printing(text: str) -> tuple[str, ...]:
    """Return a command that prints this, as the driver's program does."""
    return (sys.executable, "-c", f"print({text!r}, end='')")


@pytest.mark.parametrize(
    ("limit", "used", "total", "free"),
    [(None, None, 1024000, 409600), ("max", "5", 1024000, 409600), ("500000", "300000", 500000, 200000)],
)
def test_main_memory(tmp_path: Path, limit: str | None, used: str | None, total: int, free: int) -> None:
    (tmp_path / "meminfo").write_text(FACTS)
    if limit is not None and used is not None:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text(used)
    assert total_main_memory(tmp_path / "meminfo", tmp_path) == total
    assert free_main_memory(tmp_path / "meminfo", tmp_path) == free


def test_files_in_memory_give_way(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(FACTS)
    for name, content in (("max", "500000"), ("current", "300000"), ("stat", "anon 7\ninactive_file 9000\nfile 8\n")):
        (tmp_path / f"memory.{name}").write_text(content)
    assert free_main_memory(tmp_path / "meminfo", tmp_path) == 209000


def test_main_memory_that_is_unknown(tmp_path: Path) -> None:
    assert total_main_memory(tmp_path / "meminfo", tmp_path) is None


def test_memory_of_visible_gpus() -> None:
    name = "NVIDIA H100 80GB HBM3"
    first = DeviceMemory(0, name, 1000 * MEBIBYTE, 81559 * MEBIBYTE, 80000 * MEBIBYTE)
    assert gpu_memory({}, printing(GPUS)) == [first, DeviceMemory(1, name, 0, 81559 * MEBIBYTE, 81000 * MEBIBYTE)]
    chosen = {"CUDA_VISIBLE_DEVICES": "GPU-b,0"}
    assert [(each.number, each.used) for each in gpu_memory(chosen, printing(GPUS))] == [(0, 0), (1, 1000 * MEBIBYTE)]


@pytest.mark.parametrize("told", ["", "no devices\n", "0, GPU-a, [N/A], [N/A], [N/A], Jetson\n"])
def test_gpus_that_do_not_tell(told: str) -> None:
    assert gpu_memory({}, printing(told)) == []


def test_without_the_drivers_program() -> None:
    assert gpu_memory({}, ("no-such-program",)) == []


def test_freed_memory_is_returned() -> None:
    kept = [bytes(1000) for _ in range(100_000)]  # each beyond what Python allocates itself
    del kept[:-1]  # the last one keeps the C library from returning those before it
    before = memory_of({"": [os.getpid()]})[""]
    return_free_memory()
    assert memory_of({"": [os.getpid()]})[""] < before - 50 * MEBIBYTE


# A block raises glibc's thresholds, and then a thread frees memory in an arena of its own.
KEPT = """
import os, sys, threading
from lmi_core.host.memory import return_large_blocks
from lmi_core.host.processes import memory_of
if sys.argv[1] == "bounded":
    return_large_blocks()
bytes(30 * 2**20)
before = memory_of({"": [os.getpid()]})[""]
thread = threading.Thread(target=lambda: [bytes(1000) for _ in range(50_000)] and None)
thread.start()
thread.join()
print(memory_of({"": [os.getpid()]})[""] - before)
"""


def test_arenas_of_threads_keep_little() -> None:
    def kept(how: str) -> int:
        return int(subprocess.run([sys.executable, "-c", KEPT, how], capture_output=True, check=True).stdout)

    assert kept("as it is") > 40 * MEBIBYTE
    assert kept("bounded") < 10 * MEBIBYTE

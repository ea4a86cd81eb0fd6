"""The free memory of this host and its GPUs, found without importing an engine."""

import ctypes
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

CONTROL_GROUP = Path("/sys/fs/cgroup")  # control groups, version 2
MEMORY_FACTS = Path("/proc/meminfo")
QUERY = "--query-gpu=index,uuid,memory.used,memory.total,memory.free,name"
NVIDIA_SMI = ("nvidia-smi", QUERY, "--format=csv,noheader,nounits")
SECONDS = 10.0  # to wait for the driver
MEBIBYTE = 1024 * 1024
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt


class DeviceMemory(NamedTuple):
    """The memory of a GPU, in bytes, including what other processes use."""

    number: int
    name: str
    used: int
    total: int
    free: int  # less than the rest, as the driver reserves some


def return_large_blocks() -> None:
    """Have the C library return large blocks to the system when they are freed.

    By default, glibc raises these thresholds to the size of the largest freed block, up to 32 and 64 MiB; each thread's
    arena then keeps as much memory, which malloc_trim does not return.
    """
    with suppress(AttributeError):
        c_library = ctypes.CDLL(None)
        for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            c_library.mallopt(option, MEBIBYTE)


def return_free_memory() -> None:
    """Return to the system the memory that this process has freed, as far as the C library can."""
    with suppress(AttributeError):  # glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


def total_main_memory(facts: Path = MEMORY_FACTS, control_group: Path = CONTROL_GROUP) -> int | None:
    """Return the bytes of main memory, within the container's limit; None if unknown."""
    total = _fact(facts, "MemTotal:")
    limit = _number(control_group / "memory.max")
    known = [each for each in (None if total is None else total * 1024, limit) if each is not None]
    return min(known, default=None)


def free_main_memory(facts: Path = MEMORY_FACTS, control_group: Path = CONTROL_GROUP) -> int | None:
    """Return the bytes of memory that processes can still allocate, within the container's limit; None if unknown."""
    available = _fact(facts, "MemAvailable:")
    limit, used = _number(control_group / "memory.max"), _number(control_group / "memory.current")
    if limit is None or used is None:
        return None if available is None else available * 1024
    files = _fact(control_group / "memory.stat", "inactive_file") or 0  # the page cache, which the kernel reclaims
    within = max(0, limit - used + files)
    return within if available is None else min(within, available * 1024)


def gpu_memory(
    environment: Mapping[str, str] = os.environ, command: tuple[str, ...] = NVIDIA_SMI
) -> list[DeviceMemory]:
    """Return the memory of each visible GPU, in the order of their numbers; empty if unknown."""
    try:
        output = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[part.strip() for part in line.split(",", 5)] for line in output.splitlines() if line.strip()]
    if any(len(row) < 6 or not all(part.isdecimal() for part in row[2:5]) for row in rows):
        return []
    by_name = {name: row for row in rows for name in row[:2]}
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    chosen = [row[0] for row in rows] if visible is None else [each.strip() for each in visible.split(",")]
    found = [by_name[each] for each in chosen if each in by_name]
    return [
        DeviceMemory(number, row[5], *(int(each) * MEBIBYTE for each in row[2:5])) for number, row in enumerate(found)
    ]


def _fact(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{name} ")), None)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # ValueError: "max", which is no limit
        return None

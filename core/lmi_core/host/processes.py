"""The memory and start times of processes and their descendants, on Linux."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

PROCESSES = Path("/proc")
START = 19  # the index, in `stat` behind the name, of the clock ticks from the system's start to that of the process
BOOT = "btime "  # in the system's `stat`, before the seconds since 1970
RESIDENT = 1  # the index, in `statm`, of the pages that are in main memory


class ProcessMemory(NamedTuple):
    """The main memory of a process in bytes, including shared pages."""

    process_id: int
    resident: int


def process_tree(process_id: int, root: Path = PROCESSES) -> list[ProcessMemory]:
    """Return a process and its descendants with their memory; empty if unknown, or if the process has ended."""
    found, unread, page = [], [process_id], os.sysconf("SC_PAGE_SIZE")
    seen = {process_id}
    while unread:
        current = unread.pop()
        try:
            pages = int((root / str(current) / "statm").read_text().split()[RESIDENT])
            children = [child for child in _children(root / str(current)) if child not in seen]
        except (OSError, ValueError, IndexError):  # it has ended meanwhile
            continue
        found.append(ProcessMemory(current, pages * page))
        unread += children
        seen.update(children)
    return found


def memory_of(process_ids: Mapping[str, list[int]], root: Path = PROCESSES) -> dict[str, int]:
    """Return the memory of each group of processes with their descendants, without groups that have ended."""
    found = {}
    for name, roots in process_ids.items():
        members = {each for process_id in roots for each in process_tree(process_id, root)}
        if members:
            found[name] = sum(each.resident for each in members)
    return found


def start_time(process_id: int, root: Path = PROCESSES) -> float | None:
    """Return the start time of a process, in seconds since 1970; None if unknown, or if the process has ended."""
    try:
        behind_name = (root / str(process_id) / "stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in (root / "stat").read_text().splitlines() if line.startswith(BOOT))
        return int(boot.removeprefix(BOOT)) + int(behind_name[START]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _children(folder: Path) -> Iterator[int]:
    """Yield the child processes of all threads of a process."""
    for thread in (folder / "task").iterdir():
        try:
            yield from map(int, (thread / "children").read_text().split())
        except OSError:  # the thread has ended
            continue
